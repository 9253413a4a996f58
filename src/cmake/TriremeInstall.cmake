# cmake --install: the program, the libraries of all layers with their headers, and a package that
# find_package(Trireme) finds. Included last, when every layer is declared.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(libraries GLOBAL PROPERTY TRIREME_LIBRARIES)
set(CMAKE_INSTALL_DOCDIR ${CMAKE_INSTALL_DATAROOTDIR}/doc/trireme)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Trireme)

install(TARGETS ${libraries} EXPORT TriremeTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET trireme)
  install(TARGETS trireme RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(DIRECTORY include/trireme DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN *.h)
# What `trireme job` fills in: found beside the program, wherever the prefix is moved to.
file(GLOB job_templates CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/jobs/*.sbatch)
install(FILES ${job_templates} jobs/step.sh jobs/site.ini
        DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/trireme/jobs)
install(FILES LICENSE README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})

install(EXPORT TriremeTargets NAMESPACE Trireme:: DESTINATION ${package_dir})
list(TRANSFORM libraries REPLACE "^trireme_" "Trireme::" OUTPUT_VARIABLE TRIREME_PACKAGE_TARGETS)
configure_package_config_file(src/cmake/TriremeConfig.cmake.in TriremeConfig.cmake
  INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(TriremeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES src/cmake/TriremeDependencies.cmake
              ${PROJECT_BINARY_DIR}/TriremeConfig.cmake
              ${PROJECT_BINARY_DIR}/TriremeConfigVersion.cmake
        DESTINATION ${package_dir})
