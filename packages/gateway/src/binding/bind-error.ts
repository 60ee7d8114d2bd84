/** The request does not fit the method's message; the message names the field. */
export class BindError extends Error {
  override readonly name = 'BindError';
  /** The field's dotted path; empty for the body as a whole. */
  readonly field: string;

  constructor(field: string, reason: string) {
    const name = shorten(field);
    super(name === '' ? reason : `${name}: ${reason}`);
    this.field = name;
  }
}

/** The body contains an Any whose type is not known; it may be looked up. */
export class UnknownTypeBindError extends BindError {
  constructor(
    field: string,
    readonly typeName: string,
    url: string,
  ) {
    super(field, `${quote(url)} is not a type of this chain`);
  }
}

/** A value cannot be parsed; the caller turns it into a `BindError` with the field name. */
export class ValueError extends Error {}

/** Adds the field name to a `ValueError`. */
export function withFieldName<T>(field: string, read: () => T): T {
  try {
    return read();
  } catch (cause) {
    if (cause instanceof ValueError) throw new BindError(field, cause.message);
    throw cause;
  }
}

/** Quotes and truncates a caller's text for an error message. */
export function quote(text: string): string {
  return JSON.stringify(shorten(text, 80));
}

/** A name in a body may be as long as the body. */
function shorten(text: string, max = 200): string {
  return text.length > max ? `${text.slice(0, max)}…` : text;
}
