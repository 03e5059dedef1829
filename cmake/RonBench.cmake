# bench/*.c -> bench.<name>, one program per hot path.
file(GLOB benches CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/bench/*.c)
foreach(source ${benches})
    get_filename_component(name ${source} NAME_WE)
    add_executable(bench.${name} ${source})
    target_link_libraries(bench.${name} PRIVATE ${RON_SERVICES} ron_svc ron_net ron_auth ron_store ron_rt ron_obs ron_base)
endforeach()
# the service that the tests use is what it measures
target_sources(bench.frame PRIVATE ${CMAKE_SOURCE_DIR}/tests/lib/tiny.c)
target_include_directories(bench.frame PRIVATE ${CMAKE_SOURCE_DIR}/tests/lib)
