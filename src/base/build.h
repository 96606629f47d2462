/* build.h: which build of the program this is. What one build measured, proved or computed need not hold for another. */
#ifndef ES_BASE_BUILD_H
#define ES_BASE_BUILD_H

/** The version and the linker's build id in hexadecimal, which differs whenever the program does; the version alone, where
 *  there is no such id. The same string for the life of the process. */
const char *es_build_name(void);

#endif
