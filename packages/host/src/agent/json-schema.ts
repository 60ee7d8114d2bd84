import {
  canonicalJson,
  describeIssues,
  hasShortHost,
  type JsonObject,
  type Result,
  type SchemaIssue,
} from '@sibyl/protocol';
import { z } from 'zod';

/** Limits the work of one validation: even a small schema and input can match in millions of ways. */
const MAX_STEPS = 50_000;

/** The path of a value, as a linked list: built completely only for an error. */
interface Path {
  readonly parent: Path | undefined;
  readonly step: string | number;
}
type Keywords = Readonly<Record<string, unknown>>;

/** A value with the schema's defaults, and its errors. */
interface Checked {
  readonly value: unknown;
  readonly issues: readonly SchemaIssue[];
}

/**
 * Validates a value against a JSON Schema without references. Compiles and caches nothing, so a caller's schema costs
 * time only when its tool is called. Never runs regular expressions: a malicious one could block the process.
 */
export function checkJson(schema: JsonSchema, value: unknown): Checked {
  return new JsonCheck().check(schema, value, undefined);
}

/** Validates the answer to an interrupt; returns it with the schema's defaults, or its errors. */
export function checkAnswer(
  schema: JsonObject,
  answer: unknown,
): Result<unknown, readonly string[]> {
  try {
    const { value, issues } = checkJson(schema, answer);
    return issues.length === 0 ? { ok: value } : { error: describeIssues(issues, 'answer') };
  } catch (error) {
    return { error: [(error as Error).message] };
  }
}

const types: Readonly<Record<string, (value: unknown) => boolean>> = {
  array: Array.isArray,
  boolean: (value) => typeof value === 'boolean',
  integer: Number.isInteger,
  null: (value) => value === null,
  number: (value) => typeof value === 'number',
  object: isObject,
  string: (value) => typeof value === 'string',
};

/** Keywords that cannot be validated here: a schema with one is rejected rather than validated partially. */
const UNSUPPORTED = [
  'dependentRequired',
  'dependentSchemas',
  'unevaluatedItems',
  'unevaluatedProperties',
];

/** Throws for a schema that `checkJson` does not support. */
export function assertCheckable({ type, ...keywords }: Keywords): void {
  for (const name of readTypes(type))
    if (!Object.hasOwn(types, name)) throw new Error(`it has the unknown type ${name}`);
  const unsupported = UNSUPPORTED.find((name) => keywords[name] !== undefined);
  if (unsupported) throw new Error(`${unsupported} is not supported`);
}

class JsonCheck {
  private steps = 0;
  /** Values of `enum` and `const` as errors show them: many values may fail against one that is long. */
  private readonly shown = new Map<unknown, string>();

  check(schema: JsonSchema, value: unknown, path: Path | undefined): Checked {
    this.take(1);
    if (schema === true) return { value, issues: NONE };
    if (schema === false) return failed(value, path, 'is not allowed');
    const { nullable, type, enum: allowed } = schema;
    if (nullable === true && value === null) return { value, issues: NONE };
    const wanted = readTypes(type);
    if (wanted.length > 1) this.take(wanted.length);
    if (wanted.length > 0 && !wanted.some((name) => types[name]?.(value)))
      return failed(value, path, `expected ${wanted.join(' or ')}`);
    if (Array.isArray(allowed) && !this.isAmong(allowed, value))
      return failed(value, path, `expected one of ${this.show(allowed)}`);
    if (schema.const !== undefined && !this.isAmong([schema.const], value))
      return failed(value, path, `expected ${this.show(schema.const)}`);
    const plain = [...findPlainErrors(schema, value), ...this.findCountErrors(schema, value)].map(
      (message) => issueAt(path, message),
    );
    return this.combine(schema, this.enter(schema, { value, issues: plain }, path), path);
  }

  /** Validates the content of an object or an array. */
  private enter(schema: Keywords, { value, issues }: Checked, path: Path | undefined): Checked {
    if (!isObject(value) && !Array.isArray(value)) return { value, issues };
    const inner = isObject(value)
      ? this.checkObject(schema, value, path)
      : this.checkArray(schema, value, path);
    return issues.length === 0 ? inner : { ...inner, issues: [...issues, ...inner.issues] };
  }

  private checkObject(schema: Keywords, value: JsonObject, path: Path | undefined): Checked {
    const properties = isObject(schema.properties) ? schema.properties : {};
    const issues = this.checkRequired(schema, value, path);
    const changes = new Map<string, unknown>();
    const checkField = (name: string, inner: JsonSchema) => {
      const checked = this.check(inner, value[name], { parent: path, step: name });
      if (checked.value !== value[name]) changes.set(name, checked.value);
      issues.push(...checked.issues);
    };
    for (const [name, inner] of Object.entries(properties)) {
      this.take(1);
      if (Object.hasOwn(value, name)) checkField(name, inner as JsonSchema);
      else if (isObject(inner) && inner.default !== undefined)
        changes.set(name, this.copy(inner.default));
    }
    const { unknown, schema: others } = this.findOthers(schema, properties, value);
    if (others !== false) for (const name of unknown) checkField(name, others);
    else issues.push(...unknownFields(unknown, path));
    if (changes.size === 0) return { value, issues };
    this.countFields(value);
    return { value: withChanges(value, changes), issues };
  }

  private checkRequired(
    schema: Keywords,
    value: JsonObject,
    path: Path | undefined,
  ): SchemaIssue[] {
    const required = Array.isArray(schema.required) ? schema.required.map(String) : [];
    this.take(required.length);
    const missing = required
      .filter((name) => !Object.hasOwn(value, name))
      .map((step) => issueAt({ parent: path, step }, 'is required'));
    if (!isObject(schema.propertyNames)) return missing;
    const { propertyNames } = schema;
    const names = Object.keys(value).flatMap(
      (step) => this.check(propertyNames, step, { parent: path, step }).issues,
    );
    return [...missing, ...names];
  }

  /** Finds the fields that `properties` does not describe, and the schema that they must match. */
  private findOthers(
    { additionalProperties, patternProperties }: Keywords,
    properties: JsonObject,
    value: JsonObject,
  ): { unknown: readonly string[]; schema: JsonSchema } {
    // Names that match a pattern must not be rejected as unknown, and patterns are not run.
    if (patternProperties !== undefined || [undefined, true].includes(additionalProperties as true))
      return { unknown: [], schema: true };
    const names = Object.keys(value);
    this.take(names.length);
    const unknown = names.filter((name) => !Object.hasOwn(properties, name));
    return { unknown, schema: additionalProperties as JsonSchema };
  }

  private checkArray(schema: Keywords, value: readonly unknown[], path: Path | undefined): Checked {
    const { prefixItems, items, additionalItems, contains, uniqueItems } = schema;
    const tuple = [prefixItems, items].find((list) => Array.isArray(list)) as
      | JsonSchema[]
      | undefined;
    const rest = (Array.isArray(items) ? additionalItems : items) as JsonSchema | undefined;
    const checked = value.map((item, i) =>
      this.check(tuple?.[i] ?? rest ?? true, item, { parent: path, step: i }),
    );
    const issues = checked.flatMap((item) => item.issues);
    if (uniqueItems === true && this.hasTwins(value))
      issues.push(issueAt(path, 'expected items that differ'));
    if (contains !== undefined) issues.push(...this.checkContains(schema, value, path));
    return { value: checked.map((item) => item.value), issues };
  }

  private checkContains(
    schema: Keywords,
    value: readonly unknown[],
    path: Path | undefined,
  ): SchemaIssue[] {
    const { contains, minContains = 1, maxContains = Number.POSITIVE_INFINITY } = schema;
    const fits = (item: unknown) => this.fits(contains as JsonSchema, item);
    const found = value.filter(fits).length;
    if (found >= Number(minContains) && found <= Number(maxContains)) return [];
    return [issueAt(path, `has ${found} items that fit "contains", which are too few or too many`)];
  }

  private combine(schema: Keywords, checked: Checked, path: Path | undefined): Checked {
    const { allOf, anyOf, oneOf, not } = schema;
    let current = checked;
    for (const part of [...listSchemas(allOf), ...this.branch(schema, checked.value)]) {
      const next = this.check(part, current.value, path);
      current = { value: next.value, issues: [...current.issues, ...next.issues] };
    }
    if (Array.isArray(anyOf)) current = this.choose(listSchemas(anyOf), current, path);
    if (Array.isArray(oneOf)) current = this.choose(listSchemas(oneOf), current, path, 1);
    if (not === undefined || !this.fits(not as JsonSchema, checked.value)) return current;
    return { ...current, issues: [...current.issues, issueAt(path, 'is not allowed')] };
  }

  /** Returns the schema that `if` selects for this value. */
  private branch(schema: Keywords, value: unknown): JsonSchema[] {
    if (schema.if === undefined) return [];
    const branch = this.fits(schema.if as JsonSchema, value) ? schema.then : schema.else;
    return branch === undefined ? [] : [branch as JsonSchema];
  }

  private choose(
    schemas: readonly JsonSchema[],
    { value, issues }: Checked,
    path: Path | undefined,
    most = Number.POSITIVE_INFINITY,
  ): Checked {
    const tried = schemas.map((schema) => this.check(schema, value, path));
    const fitting = tried.filter((each) => each.issues.length === 0);
    const [first] = fitting;
    if (first && fitting.length <= most) return { value: first.value, issues };
    const message = first ? 'fits more than one alternative' : 'fits no alternative';
    const errors = first ? [] : tried.map((each) => each.issues);
    return { value, issues: [...issues, { ...issueAt(path, message), errors }] };
  }

  private fits(schema: JsonSchema, value: unknown): boolean {
    return this.check(schema, value, undefined).issues.length === 0;
  }

  private isAmong(allowed: readonly unknown[], value: unknown): boolean {
    this.take(allowed.length);
    if (typeof value !== 'object' || value === null) return allowed.includes(value);
    const text = this.toCanonicalText(value);
    return allowed.some((one) => typeof one === 'object' && this.toCanonicalText(one) === text);
  }

  private hasTwins(items: readonly unknown[]): boolean {
    return new Set(items.map((item) => this.toCanonicalText(item))).size < items.length;
  }

  private findCountErrors({ minProperties, maxProperties }: Keywords, value: unknown): string[] {
    if (!isObject(value) || (minProperties ?? maxProperties) === undefined) return [];
    return findSizeErrors('fields', this.countFields(value), minProperties, maxProperties);
  }

  private countFields(value: JsonObject): number {
    const { length } = Object.keys(value);
    this.take(length);
    return length;
  }

  private show(value: unknown): string {
    const shown = this.shown.get(value) ?? JSON.stringify(value).slice(0, 100);
    this.shown.set(value, shown);
    return shown;
  }

  private toCanonicalText(value: unknown): string {
    const text = canonicalJson(value);
    this.take(Math.ceil(text.length / 10));
    return text;
  }

  private copy(value: unknown): unknown {
    const text = JSON.stringify(value);
    this.take(text.length);
    return JSON.parse(text);
  }

  private take(steps: number): void {
    this.steps += steps;
    if (this.steps > MAX_STEPS) throw new Error('The input is too large to check');
  }
}

const readTypes = (type: unknown): string[] =>
  (Array.isArray(type) ? type : [type]).filter((name) => name !== undefined).map(String);

const listSchemas = (list: unknown): JsonSchema[] =>
  Array.isArray(list) ? (list as JsonSchema[]) : [];

const failed = (value: unknown, path: Path | undefined, message: string): Checked => ({
  value,
  issues: [issueAt(path, message)],
});

const NONE: readonly SchemaIssue[] = [];

function issueAt(path: Path | undefined, message: string): SchemaIssue {
  const steps: (string | number)[] = [];
  for (let place = path; place; place = place.parent) steps.push(place.step);
  return { path: steps.reverse(), message };
}

const unknownFields = (keys: readonly string[], path: Path | undefined): SchemaIssue[] =>
  keys.length > 0 ? [{ ...issueAt(path, ''), code: 'unrecognized_keys', keys }] : [];

/** Without assignments: a field may be named `__proto__`. */
const withChanges = (value: JsonObject, changes: ReadonlyMap<string, unknown>): JsonObject =>
  Object.fromEntries(new Map([...Object.entries(value), ...changes]));

/** Longer texts match no format: the expressions for formats could be slow on them. */
const MAX_FORMATTED_LENGTH = 4096;

/** Validates a string, a number, or the size of an array. */
function findPlainErrors(schema: Keywords, value: unknown): string[] {
  if (typeof value === 'number') return findNumberErrors(schema, value);
  if (typeof value === 'string')
    return [
      ...findSizeErrors('characters', value.length, schema.minLength, schema.maxLength),
      ...findFormatErrors(schema.format, value),
    ];
  if (!Array.isArray(value)) return [];
  return findSizeErrors('items', value.length, schema.minItems, schema.maxItems);
}

function findSizeErrors(noun: string, size: number, least: unknown, most: unknown): string[] {
  if (typeof least === 'number' && size < least) return [`expected at least ${least} ${noun}`];
  if (typeof most === 'number' && size > most) return [`expected at most ${most} ${noun}`];
  return [];
}

function findNumberErrors(schema: Keywords, value: number): string[] {
  const { minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf } = schema;
  // Draft 4 uses `true` next to the limit.
  const above = exclusiveMinimum === true ? minimum : exclusiveMinimum;
  const below = exclusiveMaximum === true ? maximum : exclusiveMaximum;
  if (typeof minimum === 'number' && value < minimum) return [`expected at least ${minimum}`];
  if (typeof maximum === 'number' && value > maximum) return [`expected at most ${maximum}`];
  if (typeof above === 'number' && value <= above) return [`expected more than ${above}`];
  if (typeof below === 'number' && value >= below) return [`expected less than ${below}`];
  if (typeof multipleOf === 'number' && z.util.floatSafeRemainder(value, multipleOf) !== 0)
    return [`expected a multiple of ${multipleOf}`];
  return [];
}

const formats: Readonly<Record<string, z.ZodType>> = {
  date: z.iso.date(),
  'date-time': z.iso.datetime({ offset: true }),
  duration: z.iso.duration(),
  email: z.email(),
  ipv4: z.ipv4(),
  ipv6: z.ipv6(),
  uri: z.string().refine(hasShortHost, { abort: true }).check(z.url()),
  uuid: z.uuid(),
};

function findFormatErrors(format: unknown, value: string): string[] {
  const known = typeof format === 'string' && Object.hasOwn(formats, format);
  if (!known) return [];
  const fits = value.length <= MAX_FORMATTED_LENGTH && formats[format]?.safeParse(value).success;
  return fits ? [] : [`expected a ${format}`];
}

/** A JSON Schema: an object, or a boolean for any value or none. */
export type JsonSchema = JsonObject | boolean;

/** Keywords that contain a schema or a list of schemas. */
const HOLDS_SCHEMAS = new Set([
  'additionalItems',
  'additionalProperties',
  'allOf',
  'anyOf',
  'contains',
  'else',
  'if',
  'items',
  'not',
  'oneOf',
  'prefixItems',
  'propertyNames',
  'then',
  'unevaluatedItems',
  'unevaluatedProperties',
]);

/** Keywords that contain schemas by name. */
const HOLDS_NAMED_SCHEMAS = new Set(['dependentSchemas', 'patternProperties', 'properties']);

/** Replaces every direct subschema; values that only look like schemas stay unchanged. */
export function mapSchema(
  schema: JsonObject,
  replace: (inner: JsonSchema) => JsonSchema,
): JsonObject {
  const each = (inner: unknown) => replace(asSchema(inner));
  const entries = Object.entries(schema).map(([keyword, value]) => {
    if (HOLDS_NAMED_SCHEMAS.has(keyword)) return [keyword, mapValues(value, each)];
    if (!HOLDS_SCHEMAS.has(keyword)) return [keyword, value];
    return [keyword, Array.isArray(value) ? value.map(each) : each(value)];
  });
  return Object.fromEntries(entries);
}

export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function asSchema(value: unknown): JsonSchema {
  if (typeof value === 'boolean' || isObject(value)) return value;
  throw new Error('a part of it is not a schema');
}

function mapValues(named: unknown, replace: (inner: unknown) => JsonSchema): JsonObject {
  if (!isObject(named)) throw new Error('a part of it is not a schema');
  return Object.fromEntries(Object.entries(named).map(([name, inner]) => [name, replace(inner)]));
}
