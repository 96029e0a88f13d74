# SPDX-License-Identifier: Apache-2.0
# Of each package, before it is closed: pages and changelogs are compressed, as Debian wants them.
file(GLOB_RECURSE files ${CPACK_TEMPORARY_DIRECTORY}/*/usr/share/man/*.[18] ${CPACK_TEMPORARY_DIRECTORY}/*/usr/share/doc/*/changelog
	${CPACK_TEMPORARY_DIRECTORY}/usr/share/man/*.[18] ${CPACK_TEMPORARY_DIRECTORY}/usr/share/doc/*/changelog)
foreach(file ${files})
	execute_process(COMMAND gzip -9n ${file} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
