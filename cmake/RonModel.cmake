# Model checking: the sources of rt, compiled with RON_MODEL against the deterministic scheduler in tests/model/sched.
#
#   tests/model/<area>/model_*.c      one program each, a CTest of label model
#   tests/model/<area>/model_*.sources  (optional) further sources, one path per line from the top, that are compiled
#                                     into that program under RON_MODEL too (a service's task, say)
#   tests/model/mutants.txt           broken variants that the models must find, one CTest each
#
# The scheduler switches stacks by hand, which sanitizers do not follow; it is written for x86-64.
if(RON_SANITIZE OR NOT CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
    return()
endif()
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(model_dir ${CMAKE_SOURCE_DIR}/tests/model)

file(GLOB rt_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/rt/*.c)
file(GLOB sched_sources CONFIGURE_DEPENDS ${model_dir}/sched/*.c)
add_library(ron_rt_model STATIC ${sched_sources} ${rt_sources})
target_include_directories(ron_rt_model PUBLIC ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR} ${model_dir}/sched)
target_include_directories(ron_rt_model SYSTEM PUBLIC ${LATE_INCLUDE_DIRS})
target_compile_definitions(ron_rt_model PUBLIC RON_MODEL=1)
target_compile_options(ron_rt_model PUBLIC -O2)
target_link_libraries(ron_rt_model PUBLIC ron_base)

# ron_model(name SOURCES file...): the program m.<name> and its test model.<name>.
function(ron_model name)
    cmake_parse_arguments(arg "" "" "SOURCES" ${ARGN})
    add_executable(m.${name} ${arg_SOURCES})
    target_link_libraries(m.${name} PRIVATE ron_rt_model)
    add_test(NAME model.${name} COMMAND m.${name})
    set_tests_properties(model.${name} PROPERTIES LABELS model TIMEOUT 300)
endfunction()

file(GLOB programs CONFIGURE_DEPENDS ${model_dir}/*/model_*.c)
foreach(source ${programs})
    file(RELATIVE_PATH rel ${model_dir} ${source})
    string(REGEX REPLACE "/model_(.*)\\.c$" ".\\1" name ${rel})
    ron_further_sources(${source} more)
    ron_model(${name} SOURCES ${source} ${more})
endforeach()

# Mutants: "@ name file program" in mutants.txt; the patched copy is linked before the library that has the original.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${model_dir}/mutants.txt)
file(STRINGS ${model_dir}/mutants.txt mutants REGEX "^@ ")
foreach(line ${mutants})
    string(REGEX REPLACE "^@ ([a-z0-9_]+) +([a-z/_]+)\\.c +([a-z.]+) *$" "\\1;\\2;\\3" parts ${line})
    list(GET parts 0 name)
    list(GET parts 1 file)
    list(GET parts 2 program)
    if(NOT file MATCHES "/")
        set(file src/rt/${file})
        set(program rt.${program})
    endif()
    set(patched ${CMAKE_BINARY_DIR}/mutants/${name}.c)
    add_custom_command(
        OUTPUT ${patched}
        COMMAND ${Python3_EXECUTABLE} ${model_dir}/mutate ${model_dir}/mutants.txt ${name}
                ${CMAKE_SOURCE_DIR}/${file}.c ${patched}
        DEPENDS ${model_dir}/mutate ${model_dir}/mutants.txt ${CMAKE_SOURCE_DIR}/${file}.c)
    if(NOT TARGET model_object_${program})
        string(REGEX REPLACE "\\.([a-z]+)$" "/model_\\1.c" source ${program})
        ron_further_sources(${model_dir}/${source} more)
        add_library(model_object_${program} OBJECT ${model_dir}/${source})
        target_link_libraries(model_object_${program} PRIVATE ron_rt_model)
        if(more)
            add_library(model_parts_${program} STATIC ${more})
            target_link_libraries(model_parts_${program} PUBLIC ron_rt_model)
        endif()
    endif()
    add_executable(mutant.${name} ${patched} $<TARGET_OBJECTS:model_object_${program}>)
    target_compile_options(mutant.${name} PRIVATE -Wno-unused-function -Wno-unused-parameter -Wno-unused-variable)
    target_link_libraries(mutant.${name} PRIVATE $<TARGET_NAME_IF_EXISTS:model_parts_${program}> ron_rt_model)
    add_test(NAME model.mutant.${name} COMMAND mutant.${name} --expect-failure)
    set_tests_properties(model.mutant.${name} PROPERTIES LABELS model TIMEOUT 300)
endforeach()
