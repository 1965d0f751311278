/* Start-up of a 32-bit RISC-V (qemu: virt). */
#include <stdint.h>

#include "semihosting.h"

extern uint32_t data_from[], data_begin[], data_end[], bss_begin[], bss_end[];
int main(void);
void begin(void);

__attribute__((naked, section(".vectors"), used)) void start(void);
void start(void)
{
  __asm__ volatile(".option push\n .option norelax\n la gp, __global_pointer$\n .option pop\n"
                   "la sp, stack_end\n j begin\n");
}

void begin(void)
{
  uint32_t *to = data_begin;
  for (const uint32_t *from = data_from; to < data_end;) {
    *to++ = *from++;
  }
  for (to = bss_begin; to < bss_end;) {
    *to++ = 0;
  }
  host_exit(main());
}
