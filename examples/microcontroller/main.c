/* One image through the network: which class, on a board without an operating system. */
#include "board/semihosting.h"
#include "image.h" /* static const uint8_t levels[NET_LEVELS] */
#include "net.h"

int main(void)
{
  static net_state state;
  static net_arena arena;
  static net_output out;
  char text[] = "class ?\n";
  int best = 0;
  net_run(&state, &arena, levels, NET_STEPS, &out);
  for (int i = 1; i < (int)(sizeof out.o0 / sizeof out.o0[0]); i++) {
    best = out.o0[i] > out.o0[best] ? i : best;
  }
  text[6] = (char)('0' + best);
  host_print(text);
  return 0;
}
