/** What a plugin threw, as an error that can be looked at: it may throw anything, also what throws once more. */
export function soundError(thrown: unknown): Error {
  try {
    if (thrown instanceof Error && [thrown.message, thrown.stack, ...Object.values(thrown)])
      return thrown;
  } catch {
    // Nothing of it can be told.
  }
  return new Error(`it threw what is no error (${typeof thrown})`);
}
