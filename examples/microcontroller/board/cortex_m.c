/* Start-up of a Cortex-M: the vector table, .data copied out of flash, .bss cleared, main. */
#include <stdint.h>

#include "semihosting.h"

extern uint32_t stack_end[], data_from[], data_begin[], data_end[], bss_begin[], bss_end[];
int main(void);
void start(void);
static void fault(void);

__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {
    stack_end, (const void *)start, (const void *)fault, (const void *)fault};

void start(void)
{
  uint32_t *to = data_begin;
#if defined(__ARM_FP)
  *(volatile uint32_t *)0xE000ED88 |= 0xFU << 20; /* CPACR: the floating-point unit */
#endif
  for (const uint32_t *from = data_from; to < data_end;) {
    *to++ = *from++;
  }
  for (to = bss_begin; to < bss_end;) {
    *to++ = 0;
  }
  host_exit(main());
}

static void fault(void)
{
  host_exit(99);
}
