/** The store cannot be opened or reached; the message says what to do and holds no secret. */
export class StoreError extends Error {
  override readonly name = 'StoreError';
}
