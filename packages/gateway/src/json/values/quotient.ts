/** The whole part of a quotient of small positive numbers, which the compiler keeps an integer. */
export function quotient(dividend: number, divisor: number): number {
  return (dividend / divisor) | 0;
}
