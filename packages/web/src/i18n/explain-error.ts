import type { ChatMessage, ErrorFrame } from '@sibyl/client';
import { getLanguage, type TextKey, t } from './i18n.js';

/** What went wrong, in the language of the user where the page knows the error; the oracle itself writes English. */
export function explainError(error: {
  readonly message: string;
  readonly code?: string | undefined;
}): string {
  const key = getLanguage() === 'en' ? undefined : findText(error.code ?? '');
  return key ? t(key) : error.message;
}

const findText = (code: string): TextKey | undefined =>
  texts[code] ?? (code.endsWith('_not_found') ? 'chat.error.gone' : undefined);

const texts: Readonly<Record<string, TextKey | undefined>> = {
  network_error: 'chat.error.network',
  connection_lost: 'chat.error.network',
  rate_limited: 'chat.error.busy',
  host_busy: 'chat.error.busy',
  address_busy: 'chat.error.busy',
  verification_busy: 'chat.error.busy',
  too_many_turns: 'chat.error.busy',
  too_many_streams: 'chat.error.busy',
  too_many_bodies: 'chat.error.busy',
  too_many_uploads: 'chat.error.busy',
  too_many_exports: 'chat.error.busy',
  imports_busy: 'chat.error.busy',
  uploads_full: 'chat.error.busy',
  bodies_too_large: 'chat.error.busy',
  internal_error: 'chat.error.unavailable',
  invalid_reply: 'chat.error.unavailable',
  store_unavailable: 'chat.error.unavailable',
  host_stopping: 'chat.error.unavailable',
  disk_full: 'chat.error.unavailable',
  gate_unavailable: 'chat.error.unavailable',
  plugin_failed: 'chat.error.unavailable',
  model_budget_exhausted: 'chat.error.budget',
  insufficient_credit: 'chat.unsent.credit',
  caller_not_allowed: 'chat.error.invited',
  invalid_invitation: 'chat.error.invitation',
  invitation_used: 'chat.error.invitation',
  invitation_expired: 'chat.error.invitation',
  caller_blocked: 'chat.error.blocked',
  file_too_large: 'chat.error.fileTooLarge',
  body_too_large: 'chat.error.fileTooLarge',
  file_space_exhausted: 'chat.error.fileSpace',
  too_many_sessions: 'chat.error.manySessions',
  turn_running: 'chat.error.running',
  approval_closed: 'chat.error.decided',
};

/** What went wrong with the model. */
const reasons = {
  rate_limit: 'chat.failed.rateLimit',
  billing: 'chat.failed.billing',
  auth: 'chat.failed.auth',
  timeout: 'chat.failed.timeout',
  server: 'chat.failed.server',
  network: 'chat.failed.network',
} as const satisfies Partial<Record<ErrorFrame['kind'], TextKey>>;

export function describeFailure({ error, content }: ChatMessage): string {
  const reason =
    error?.code === 'model_unavailable' && error.kind !== 'unknown'
      ? t(reasons[error.kind])
      : explainError({ code: error?.code, message: error?.error ?? '' });
  return content ? `${reason} ${t('chat.failed.kept')}` : reason;
}
