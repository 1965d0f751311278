/* Semihosting calls of ARM, which RISC-V has taken over. */
#include "semihosting.h"

#include <string.h>

enum { OPEN = 0x01, CLOSE = 0x02, WRITE0 = 0x04, WRITE = 0x05, READ = 0x06, EXIT = 0x20 };
enum { READ_BINARY = 1, WRITE_BINARY = 5, APPLICATION_EXIT = 0x20026 };

static intptr_t call(intptr_t what, const void *with)
{
#if defined(__riscv)
  register intptr_t a0 __asm__("a0") = what;
  register const void *a1 __asm__("a1") = with;
  __asm__ volatile(
      ".balign 16\n .option push\n .option norvc\n"
      "slli x0, x0, 0x1f\n ebreak\n srai x0, x0, 7\n"
      ".option pop\n"
      : "+r"(a0)
      : "r"(a1)
      : "memory");
  return a0;
#else
  register intptr_t r0 __asm__("r0") = what;
  register const void *r1 __asm__("r1") = with;
  __asm__ volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
  return r0;
#endif
}

int host_open(const char *name, int write)
{
  const intptr_t with[3] = {(intptr_t)name, write ? WRITE_BINARY : READ_BINARY, (intptr_t)strlen(name)};
  return (int)call(OPEN, with);
}

int host_read(int handle, void *to, size_t size)
{
  const intptr_t with[3] = {handle, (intptr_t)to, (intptr_t)size};
  return (int)call(READ, with);
}

int host_write(int handle, const void *from, size_t size)
{
  const intptr_t with[3] = {handle, (intptr_t)from, (intptr_t)size};
  return (int)call(WRITE, with);
}

void host_close(int handle)
{
  const intptr_t with[1] = {handle};
  call(CLOSE, with);
}

void host_print(const char *text)
{
  call(WRITE0, text);
}

void host_exit(int code)
{
  const intptr_t with[2] = {APPLICATION_EXIT, code};
  call(EXIT, with);
  for (;;) {
  }
}
