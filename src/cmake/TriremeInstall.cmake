# cmake --install: the program, the libraries of all layers with their headers, and a package that
# find_package(Trireme) finds. Included last, when every layer is declared.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(libraries GLOBAL PROPERTY TRIREME_LIBRARIES)
set(CMAKE_INSTALL_DOCDIR ${CMAKE_INSTALL_DATAROOTDIR}/doc/trireme)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Trireme)

# What must be built before anything is copied: the program alone is not enough.
set(installed_files "")
foreach(target IN LISTS libraries)
  list(APPEND installed_files $<TARGET_FILE:${target}>)
endforeach()
list(APPEND installed_files $<TARGET_FILE:trireme_tuner>)
add_custom_target(installable DEPENDS ${libraries} trireme_tuner)
if(TARGET trireme)
  list(APPEND installed_files $<TARGET_FILE:trireme>)
  add_dependencies(installable trireme)
endif()
if(NOT TRIREME_SANITIZE)  # what modules/ has the program write about itself
  foreach(name ${PROJECT_VERSION} ${PROJECT_VERSION}.lua trireme.bash trireme.zsh trireme.man)
    list(APPEND installed_files ${PROJECT_BINARY_DIR}/modules/${name})
  endforeach()
endif()
list(JOIN installed_files " " installed_files)
install(CODE "
  foreach(file IN ITEMS ${installed_files})
    if(NOT EXISTS \"\${file}\")
      message(FATAL_ERROR \"\${file} is not built: run\\n  cmake --build ${PROJECT_BINARY_DIR} --target installable\\nand install again\")
    endif()
  endforeach()" ALL_COMPONENTS)

# Two components: Runtime is what a package of the program holds.
install(TARGETS ${libraries} EXPORT TriremeTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT Development)
if(TARGET trireme)
  # Libraries outside the system's folders are found where the build has found them.
  set_target_properties(trireme PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
  install(TARGETS trireme RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT Runtime)
endif()
# NCCL's tuner: the program looks for it in lib/trireme, wherever the prefix is moved to.
install(TARGETS trireme_tuner LIBRARY DESTINATION lib/trireme COMPONENT Runtime)
install(DIRECTORY include/trireme DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        COMPONENT Development FILES_MATCHING PATTERN *.h)
# What `trireme job` fills in: found beside the program, wherever the prefix is moved to.
file(GLOB job_templates CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/jobs/*.sbatch)
install(FILES ${job_templates} jobs/step.sh jobs/site.ini
        DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/trireme/jobs COMPONENT Runtime)
install(FILES LICENSE README.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT Runtime)

install(EXPORT TriremeTargets NAMESPACE Trireme:: DESTINATION ${package_dir}
        COMPONENT Development)
list(TRANSFORM libraries REPLACE "^trireme_" "Trireme::" OUTPUT_VARIABLE TRIREME_PACKAGE_TARGETS)
configure_package_config_file(src/cmake/TriremeConfig.cmake.in TriremeConfig.cmake
  INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(TriremeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES src/cmake/TriremeDependencies.cmake
              ${PROJECT_BINARY_DIR}/TriremeConfig.cmake
              ${PROJECT_BINARY_DIR}/TriremeConfigVersion.cmake
        DESTINATION ${package_dir} COMPONENT Development)
