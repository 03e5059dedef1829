# Everything comes from Debian packages (tools/setup installs them); nothing is vendored.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(DEPS REQUIRED IMPORTED_TARGET
    jansson openssl libmacaroons libprotobuf-c zlib libzstd sqlite3)
pkg_check_modules(LATE REQUIRED libcurl libpq) # loaded when first needed (src/rt/late.h): only their headers here
find_program(PROTOC_C protoc-c REQUIRED)
add_library(ron_deps INTERFACE)
target_include_directories(ron_deps SYSTEM INTERFACE ${LATE_INCLUDE_DIRS})
target_link_libraries(ron_deps INTERFACE PkgConfig::DEPS Threads::Threads m ${CMAKE_DL_LIBS})
