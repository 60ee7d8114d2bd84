import { ModelFault } from '../model-fault.js';
import { faultOfKind, faultOfRefusal } from '../provider-fault.js';
import { retryAfterOf } from '../retry-after.js';

/** What the SDK's errors carry, thrown or as parts of a stream: read by shape, for there are several classes. */
interface SdkError {
  readonly name?: string;
  readonly message?: string;
  readonly type?: string;
  readonly code?: string | number;
  readonly statusCode?: number;
  readonly responseHeaders?: Record<string, string>;
  readonly responseBody?: string;
}

/** The fault behind anything the SDK throws or streams as an error. */
export function faultOfSdkError(error: unknown): ModelFault {
  if (error instanceof ModelFault) return error;
  const found: SdkError = typeof error === 'object' && error !== null ? error : {};
  const { name = '', message = String(error), statusCode = 0 } = found;
  if (statusCode >= 400) return faultOfRefusal(refusalOf(found, statusCode));
  if (name === 'AI_LoadAPIKeyError') return faultOfKind('auth', name);
  // A connection that breaks off keeps the status its reply began with.
  if (name === 'AI_APICallError') return faultOfKind('network', message);
  if (/JSONParse|TypeValidation|InvalidResponse|EmptyResponse/.test(name) || found.type)
    return faultOfKind('server', `${found.type ?? name}: ${message}`);
  return faultOfRefusal({ status: 0, text: message });
}

function refusalOf(error: SdkError, status: number) {
  const { message = '', type, code, responseHeaders = {}, responseBody = '' } = error;
  // The body is looked at for what the message leaves out.
  const words = responseBody.matchAll(/"(?:code|type|reason)":\s*"([\w.-]{1,60})"/g);
  return {
    status,
    text: message,
    code: [type, code, ...[...words].map(([, word]) => word)].filter(Boolean).join(' '),
    retryAfterSeconds: retryAfterOf(responseHeaders, responseBody),
  };
}
