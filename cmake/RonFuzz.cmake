# tests/fuzz/fuzz_*.c -> one libFuzzer program each; tests/fuzz/corpus/<name>/ holds its seeds.
file(GLOB fuzzers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/fuzz/fuzz_*.c)
foreach(source ${fuzzers})
    get_filename_component(name ${source} NAME_WE)
    add_executable(${name} ${source})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    target_link_libraries(${name} PRIVATE ${RON_SERVICES} ron_svc ron_net ron_auth ron_store ron_rt ron_obs ron_base)
endforeach()
