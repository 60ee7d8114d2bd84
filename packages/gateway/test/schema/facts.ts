/** A compact description of a chain's messages for tests. */
export interface Facts {
  readonly messages: Readonly<Record<string, readonly FieldFact[]>>;
  readonly enums?: Readonly<Record<string, Readonly<Record<string, string>>>>;
  readonly services?: Readonly<Record<string, Readonly<Record<string, MethodFact>>>>;
}

export interface FieldFact {
  readonly no: number;
  readonly name: string;
  /** A scalar's name, a full type name, or `map<key, value>`. */
  readonly type: string;
  readonly repeated?: boolean;
  /** `optional` of proto3. */
  readonly optional?: boolean;
  readonly oneof?: string;
  readonly deprecated?: boolean;
  readonly nullable?: boolean;
  readonly customtype?: string;
  readonly casttype?: string;
  readonly stdtime?: boolean;
  readonly stdduration?: boolean;
}

export interface MethodFact {
  readonly request: string;
  readonly response: string;
  readonly path: string;
  /** GET by default. */
  readonly verb?: 'get' | 'post' | 'put' | 'patch' | 'delete';
  readonly body?: string;
  /** The path of an additional binding, for GET. */
  readonly otherPath?: string;
  readonly streams?: boolean;
}

export interface MapType {
  readonly key: string;
  readonly value: string;
}

export function toMapType(type: string): MapType | undefined {
  const match = /^map<(\w+), ?([\w.]+)>$/.exec(type);
  return match ? { key: match[1] as string, value: match[2] as string } : undefined;
}
