# What `cmake --install` puts where. The program writes its own man pages from its option tables; a sanitized one is slow and
# prints reports, and no one installs it.
include(GNUInstallDirs)
install(TARGETS evenshare_cli evenshare)
install(DIRECTORY include/evenshare TYPE INCLUDE)

if(NOT ES_SANITIZE AND NOT ES_FUZZ AND NOT CMAKE_CROSSCOMPILING)
  add_custom_command(TARGET evenshare_cli POST_BUILD
    COMMAND ${CMAKE_SOURCE_DIR}/tools/make_man_pages $<TARGET_FILE:evenshare_cli> ${CMAKE_BINARY_DIR}/man
    COMMENT "Writing man pages" VERBATIM)
  install(DIRECTORY ${CMAKE_BINARY_DIR}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endif()
