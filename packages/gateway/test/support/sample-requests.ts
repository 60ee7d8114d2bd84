import {
  type DescField,
  type DescMethod,
  getOption,
  type JsonObject,
  type JsonValue,
  type Registry,
  ScalarType,
} from '@bufbuild/protobuf';
import type { Pick } from './sample-values.js';

/** A request as HTTP has it, and the message it must become. */
export interface SampleRequest {
  readonly path: string;
  readonly message: JsonObject;
}

const IDS = [
  'did:ixo:entity:1a2b3c',
  'ixo1qqqsyqcyq5rqwzqf',
  'with/slash and spaces?',
  'ümläut&=+%',
];
const PAGE = {
  query: { key: '/+8=', offset: '3', limit: '7', count_total: 'true', reverse: 'true' },
  message: { key: '/+8=', offset: '3', limit: '7', count_total: true, reverse: true },
};

/** The path template of a method, if it is reached by GET. */
export function readTemplate(registry: Registry, method: DescMethod): string {
  const extension = registry.getExtension('google.api.http');
  if (!extension) throw new Error('google.api.http is not declared');
  const rule = getOption(method, extension) as { pattern?: { case?: string; value?: string } };
  if (rule.pattern?.case !== 'get') throw new Error(`${method.name} is not reached by GET`);
  return rule.pattern.value ?? '';
}

/** A request with every field set, in the path where the template has it, else in the query. */
export function sampleRequest(method: DescMethod, template: string, pick: Pick): SampleRequest {
  const message: Record<string, JsonValue> = {};
  const query = new URLSearchParams();
  let path = template;
  for (const field of method.input.fields) {
    if (field.message) {
      message[field.name] = PAGE.message;
      for (const [key, value] of Object.entries(PAGE.query))
        query.set(`${field.name}.${key}`, value);
      continue;
    }
    const value = sampleParameter(field, pick);
    message[field.name] = value;
    const inPath = path.replace(`{${field.name}}`, encodeURIComponent(value));
    if (inPath === path) query.set(field.name, value);
    path = inPath;
  }
  return { path: query.size > 0 ? `${path}?${query}` : path, message };
}

function sampleParameter(field: DescField, pick: Pick): string {
  if (field.enum) return pick(field.enum.values.slice(1)).name;
  return field.scalar === ScalarType.UINT64 ? '18446744073709551615' : pick(IDS);
}
