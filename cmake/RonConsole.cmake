# Links the built browser console (build/console, made by tools/console) into the program; without it the table is empty.
set(console_dist ${CMAKE_SOURCE_DIR}/build/console)
set(console_assets ${CMAKE_BINARY_DIR}/console_assets.c)
file(GLOB_RECURSE console_files CONFIGURE_DEPENDS ${console_dist}/*)
add_custom_command(
    OUTPUT ${console_assets}
    COMMAND ${CMAKE_SOURCE_DIR}/tools/embed_console ${console_dist} ${console_assets}
    DEPENDS ${console_files} ${CMAKE_SOURCE_DIR}/tools/embed_console)
# Its symbols are the assembler's: link-time optimisation would take the table apart from them.
set_source_files_properties(${console_assets} PROPERTIES COMPILE_OPTIONS -fno-lto)
target_sources(ron_svc_console PRIVATE ${console_assets})
