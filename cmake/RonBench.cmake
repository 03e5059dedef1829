# bench/*.c -> bench.<name>, one program per hot path.
#   bench/<name>.sources   (optional) further sources, one path per line from the top (a load generator tests use too)
# `bench` builds them all. Where tests are built they are part of everything, so that they always compile; who only wants
# the program is spared a link-time optimisation per bench.
add_custom_target(bench)
file(GLOB benches CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/bench/*.c)
foreach(source ${benches})
    get_filename_component(name ${source} NAME_WE)
    ron_further_sources(${source} more)
    add_executable(bench.${name} ${source} ${more})
    if(NOT RON_TESTS)
        set_target_properties(bench.${name} PROPERTIES EXCLUDE_FROM_ALL ON)
    endif()
    add_dependencies(bench bench.${name})
    target_include_directories(bench.${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests/lib)
    target_link_libraries(bench.${name} PRIVATE ron_load ${RON_SERVICES} ron_svc ron_net ron_auth ron_store ron_rt ron_obs ron_base)
endforeach()
# the service that the tests use is what it measures
target_sources(bench.frame PRIVATE ${CMAKE_SOURCE_DIR}/tests/lib/tiny.c)
target_include_directories(bench.frame PRIVATE ${CMAKE_SOURCE_DIR}/tests/lib)
