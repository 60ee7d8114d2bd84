import type { ModelTool } from '../model.js';

type Arguments = Record<string, unknown>;

/** Takes a tool's arguments from what was said: as JSON, else as `key: value` pairs, else all of it as what the tool requires. */
export function argumentsFrom(tool: ModelTool, said: string): Arguments {
  return jsonIn(said) ?? pairsIn(tool, said) ?? required(tool, said);
}

/** More braces than anybody closes after an object. */
const ATTEMPTS = 20;

/** The first JSON object in a text. */
function jsonIn(text: string): Arguments | undefined {
  const start = text.indexOf('{');
  let end = text.lastIndexOf('}');
  for (let attempt = 0; start >= 0 && end > start && attempt < ATTEMPTS; attempt++) {
    const value = parsed(text.slice(start, end + 1));
    if (value) return value;
    end = text.lastIndexOf('}', end - 1);
  }
  return undefined;
}

function parsed(json: string): Arguments | undefined {
  try {
    return JSON.parse(json);
  } catch {
    return undefined;
  }
}

interface FieldSchema {
  readonly type?: unknown;
  readonly enum?: unknown;
}

function fieldsOf({ inputSchema }: ModelTool): Record<string, FieldSchema> {
  return (inputSchema.properties ?? {}) as Record<string, FieldSchema>;
}

const PAIR = /\b(\w+)\s*[:=]\s*("[^"]*"|[^,;\n]+)/g;

/** What was named, and nothing for the rest: whether that can be missing is for the tool to say. */
function pairsIn(tool: ModelTool, said: string): Arguments | undefined {
  const fields = fieldsOf(tool);
  const found: Arguments = {};
  for (const [, key = '', value = ''] of said.matchAll(PAIR)) {
    const field = Object.hasOwn(fields, key) ? fields[key] : undefined;
    if (field) found[key] = convert(field, value.trim().replace(/^"|"$/g, ''));
  }
  return Object.keys(found).length > 0 ? found : undefined;
}

function required(tool: ModelTool, said: string): Arguments {
  const fields = fieldsOf(tool);
  const names = Array.isArray(tool.inputSchema.required) ? tool.inputSchema.required : [];
  const text = said.replace(/^(with|to|for|on|about|in|saying)\s+/i, '').trim();
  return Object.fromEntries(names.map((name: string) => [name, convert(fields[name] ?? {}, text)]));
}

function convert(field: FieldSchema, text: string): unknown {
  if (Array.isArray(field.enum))
    return field.enum.find((option) => text.includes(String(option))) ?? field.enum[0];
  switch (field.type) {
    case 'number':
      return Number(/-?\d+(\.\d+)?/.exec(text)?.[0] ?? 0);
    case 'integer':
      return Math.trunc(Number(/-?\d+/.exec(text)?.[0] ?? 0));
    case 'boolean':
      return !/\b(false|no|off)\b/i.test(text);
    case 'array':
      return text
        .split(/,|\band\b/)
        .map((item) => item.trim())
        .filter(Boolean);
    case 'object':
      return {};
    default:
      return text;
  }
}
