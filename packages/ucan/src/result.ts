/** What every function here returns instead of throwing on input. */
export type Result<T, E> =
  | { readonly ok: T; readonly error?: never }
  | { readonly ok?: never; readonly error: E };
