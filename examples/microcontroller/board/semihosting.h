/* Files and the exit of the machine that runs the emulator or holds the debugger. */
#ifndef SEMIHOSTING_H
#define SEMIHOSTING_H

#include <stddef.h>
#include <stdint.h>

int host_open(const char *name, int write); /* a handle, or -1 */
int host_read(int handle, void *to, size_t size); /* 0 where all was read */
int host_write(int handle, const void *from, size_t size);
void host_close(int handle);
void host_print(const char *text);
void host_exit(int code);

#endif
