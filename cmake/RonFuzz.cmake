# tests/fuzz/fuzz_*.c -> one libFuzzer program each; tests/fuzz/corpus/<name>/ holds its seeds.
#   tests/fuzz/<name>.sources   (optional) further sources, one path per line from the top
file(GLOB fuzzers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/fuzz/fuzz_*.c)
foreach(source ${fuzzers})
    get_filename_component(name ${source} NAME_WE)
    ron_further_sources(${source} more)
    add_executable(${name} ${source} ${more})
    target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests/lib)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    target_link_libraries(${name} PRIVATE ${RON_SERVICES} ron_svc ron_net ron_auth ron_store ron_rt ron_obs ron_base)
endforeach()
