# What `make install` puts where. Manual pages, completions and the configuration file are printed by the program itself, so
# they are always those of the version installed.
include(GNUInstallDirs)
set(RON_UNIT_DIR lib/systemd/system CACHE STRING "where systemd units go")
if(CMAKE_INSTALL_PREFIX STREQUAL "/usr")
    set(ron_etc /etc)
else()
    set(ron_etc ${CMAKE_INSTALL_SYSCONFDIR})
endif()
set(ron_generated ${CMAKE_BINARY_DIR}/generated)
add_custom_command(
    OUTPUT ${ron_generated}/stamp
    COMMAND ${CMAKE_COMMAND} -E make_directory ${ron_generated}
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${ron_generated}/man
    COMMAND ron man --out ${ron_generated}/man
    COMMAND sh -c "\"$<TARGET_FILE:ron>\" completion bash >ron.bash && \"$<TARGET_FILE:ron>\" completion zsh >_ron && \"$<TARGET_FILE:ron>\" config example >ron.toml"
    COMMAND ${CMAKE_COMMAND} -E touch ${ron_generated}/stamp
    WORKING_DIRECTORY ${ron_generated}
    DEPENDS ron
    VERBATIM)
file(MAKE_DIRECTORY ${ron_generated})
add_custom_target(ron_generated ALL DEPENDS ${ron_generated}/stamp)

install(TARGETS ron RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY ${ron_generated}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${ron_generated}/ron.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME ron)
install(FILES ${ron_generated}/_ron DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
install(FILES ${ron_generated}/ron.toml DESTINATION ${ron_etc}/ron)
install(DIRECTORY dist/systemd/ DESTINATION ${RON_UNIT_DIR} FILES_MATCHING PATTERN "*.service")
install(DIRECTORY proto dist/prometheus dist/grafana docs/openapi DESTINATION ${CMAKE_INSTALL_DATADIR}/ron)
install(FILES README.md CHANGELOG.md ARCHITECTURE.md SECURITY.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
