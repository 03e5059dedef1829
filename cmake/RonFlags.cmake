# Compiler flags shared by every target. Warnings are errors under gcc and clang alike, except where somebody else picks the
# compiler (RON_WERROR=OFF, packages).
set(CMAKE_C_STANDARD 17)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

add_compile_options(
    -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wconversion -Wsign-conversion
    -Wformat=2 -Wvla -Wundef -Wswitch-enum -Wpointer-arith -Wcast-qual -Wwrite-strings -Wimplicit-fallthrough
    -fno-omit-frame-pointer -fno-strict-aliasing -fstack-protector-strong -ffile-prefix-map=${CMAKE_SOURCE_DIR}/=)
if(RON_WERROR)
    add_compile_options(-Werror)
endif()
add_compile_definitions(_GNU_SOURCE)
if(CMAKE_C_COMPILER_ID STREQUAL "Clang")
    add_compile_options(-Wthread-safety -Wthread-safety-beta)
else()
    # snprintf that cuts is what we mean by it
    add_compile_options(-Wnull-dereference -Wno-format-truncation)
endif()
if(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT RON_SANITIZE)
    add_compile_options(-D_FORTIFY_SOURCE=2)
endif()
add_link_options(-Wl,-z,relro,-z,now -pie)
if(RON_DEBUG_LOCKS)
    add_compile_definitions(RON_DEBUG_LOCKS=1)
endif()
if(RON_SANITIZE)
    add_compile_options(-fsanitize=${RON_SANITIZE} -fno-sanitize-recover=all)
    add_link_options(-fsanitize=${RON_SANITIZE})
endif()
if(RON_FUZZ)
    add_compile_options(-fsanitize=fuzzer-no-link)
endif()
if(CMAKE_INTERPROCEDURAL_OPTIMIZATION AND RON_WERROR)
    add_link_options(-Werror) # half of the compiler runs when linking
endif()
find_program(RON_MOLD mold)
if(RON_MOLD)
    add_link_options(-fuse-ld=mold)
endif()
