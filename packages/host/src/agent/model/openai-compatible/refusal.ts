import type { IncomingMessage } from 'node:http';
import type { Refusal } from '../provider-fault.js';
import { retryAfterOf } from '../retry-after.js';

const LONGEST_BODY = 64 * 1024;

/** Reads why a server refused, in whichever of the usual shapes it says so. */
export async function refusalOf(reply: IncomingMessage): Promise<Refusal> {
  const body = await bodyOf(reply);
  return {
    status: reply.statusCode ?? 0,
    ...explanationIn(parsed(body)),
    retryAfterSeconds: retryAfterOf(reply.headers, body),
  };
}

async function bodyOf(reply: IncomingMessage): Promise<string> {
  let body = '';
  for await (const text of reply) {
    body += text;
    if (body.length > LONGEST_BODY) break;
  }
  return body;
}

function parsed(body: string): unknown {
  try {
    return JSON.parse(body);
  } catch {
    // A page for people, of a proxy perhaps: nothing to pass on.
    return {};
  }
}

/** The error of a body or of an event: `{error: {message, type, code}}`, `{error}`, `{message}`, `{detail}`. */
export function explanationIn(value: unknown): { text: string; code: string } {
  const fields = fieldsOf(value);
  const error = fields.error ?? fields.message ?? fields.detail ?? '';
  const { message, type, code } = fieldsOf(error);
  const text = typeof error === 'string' ? error : message;
  return {
    text: typeof text === 'string' ? text : '',
    code: [type, code].filter((word) => word !== undefined && word !== null).join(' '),
  };
}

function fieldsOf(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
}
