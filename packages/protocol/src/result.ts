/** The outcome of a function that does not throw on invalid input: a value or an error. */
export type Result<T, E> =
  | { readonly ok: T; readonly error?: never }
  | { readonly ok?: never; readonly error: E };
