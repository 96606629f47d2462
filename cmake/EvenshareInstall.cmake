# What `cmake --install` puts where, and the Debian package (cpack). The program writes its own man pages and completions from its
# option tables; a sanitized one is slow and prints reports, and no one installs it.
include(GNUInstallDirs)
install(TARGETS evenshare_cli evenshare)
install(DIRECTORY include/evenshare TYPE INCLUDE FILES_MATCHING PATTERN "*.h")
install(FILES models/evenshare-default.gguf DESTINATION ${CMAKE_INSTALL_DATADIR}/evenshare)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)

if(NOT ES_SANITIZE AND NOT ES_FUZZ AND NOT CMAKE_CROSSCOMPILING)
  add_custom_command(TARGET evenshare_cli POST_BUILD
    COMMAND ${CMAKE_SOURCE_DIR}/tools/make_man_pages $<TARGET_FILE:evenshare_cli> ${CMAKE_BINARY_DIR}/man ${CMAKE_BINARY_DIR}/completion
    COMMENT "Writing man pages and completions" VERBATIM)
  install(DIRECTORY ${CMAKE_BINARY_DIR}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES ${CMAKE_BINARY_DIR}/completion/bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME evenshare)
  install(FILES ${CMAKE_BINARY_DIR}/completion/zsh DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions RENAME _evenshare)
  install(FILES ${CMAKE_BINARY_DIR}/completion/fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d RENAME evenshare.fish)
endif()

# ---- for programs that use the library ----

set(ES_PC_CURL "")
if(CURL_FOUND)
  set(ES_PC_CURL " libcurl")
endif()
configure_file(cmake/evenshare.pc.in evenshare.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/evenshare.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(ES_SHARED)
  include(CMakePackageConfigHelpers)
  set(ES_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/evenshare)
  install(TARGETS evenshare_shared EXPORT evenshareTargets)
  install(EXPORT evenshareTargets NAMESPACE evenshare:: FILE evenshareConfig.cmake DESTINATION ${ES_CMAKE_DIR})
  write_basic_package_version_file(evenshareConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${CMAKE_BINARY_DIR}/evenshareConfigVersion.cmake DESTINATION ${ES_CMAKE_DIR})
endif()

# ---- a service ----

if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
  configure_file(packaging/evenshare.service.in evenshare.service @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/evenshare.service DESTINATION lib/systemd/system)
  install(FILES packaging/serve.conf DESTINATION ${CMAKE_INSTALL_FULL_SYSCONFDIR}/evenshare)
endif()

# ---- the package ----

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME evenshare)
set(CPACK_PACKAGE_CONTACT "the evenshare authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "LLM inference engine and server for long conversations")
set(CPACK_PACKAGE_DESCRIPTION "Opens a GGUF file or a Hugging Face folder and answers, on the command line or as an
OpenAI-style server with a chat page. The same question gives the same bits, a step keeps its time budget, and
memory is taken when it starts. Comes with a small model, its C library and a systemd unit.")
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${CMAKE_SOURCE_DIR}/packaging/conffiles ${CMAKE_SOURCE_DIR}/packaging/postinst
    ${CMAKE_SOURCE_DIR}/packaging/prerm ${CMAKE_SOURCE_DIR}/packaging/postrm)
include(CPack)
