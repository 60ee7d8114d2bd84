/** Claims that a JSON value is an object with fields. */
export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Reads a field by its camelCase or its snake_case name; servers differ in how they write protobuf as JSON. */
export function fieldOf(record: Record<string, unknown>, name: string): unknown {
  return record[name] ?? record[name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)];
}
