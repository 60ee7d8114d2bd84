import type { DescMethod } from '@bufbuild/protobuf';
import { BinaryReader } from '@bufbuild/protobuf/wire';
import { extensionBytes } from './extension-options.js';

export type HttpMethod = 'GET' | 'PUT' | 'POST' | 'DELETE' | 'PATCH';

/** One HTTP form of a gRPC method. */
export interface HttpBinding {
  readonly httpMethod: HttpMethod;
  readonly template: string;
  /** `*` for the whole request, the name of a field, or empty for none. */
  readonly body: string;
}

/** The extension `google.api.http` of method options, and the fields of its `HttpRule`. */
const HTTP_RULE = 72295728;
const METHOD_FIELDS: Readonly<Record<number, HttpMethod>> = {
  2: 'GET',
  3: 'PUT',
  4: 'POST',
  5: 'DELETE',
  6: 'PATCH',
};
const BODY_FIELD = 7;
const ADDITIONAL_BINDINGS_FIELD = 11;

export function httpBindings(method: DescMethod): HttpBinding[] {
  return extensionBytes(method.proto.options, HTTP_RULE).flatMap(readRule);
}

function readRule(rule: Uint8Array): HttpBinding[] {
  const reader = new BinaryReader(rule);
  const additional: HttpBinding[] = [];
  let main: Pick<HttpBinding, 'httpMethod' | 'template'> | undefined;
  let body = '';
  while (reader.pos < reader.len) {
    const [number, wireType] = reader.tag();
    const httpMethod = METHOD_FIELDS[number];
    if (httpMethod) main = { httpMethod, template: reader.string() };
    else if (number === BODY_FIELD) body = reader.string();
    else if (number === ADDITIONAL_BINDINGS_FIELD) additional.push(...readRule(reader.bytes()));
    else reader.skip(wireType, number);
  }
  return main ? [{ ...main, body }, ...additional] : additional;
}
