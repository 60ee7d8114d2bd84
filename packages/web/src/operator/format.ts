import { getLanguage, type TextKey, t } from '../i18n/i18n.js';

/** The end of a DID, which differs; the whole is in a title. */
export function shortenDid(did: string): string {
  const id = did.replace(/^did:key:/, '');
  return id.length > 16 ? `${id.slice(0, 6)}…${id.slice(-6)}` : id;
}

const formatUnit = (value: number, unit: string, maximumFractionDigits = 0): string =>
  new Intl.NumberFormat(getLanguage(), {
    style: 'unit',
    unit,
    unitDisplay: 'short',
    maximumFractionDigits,
  }).format(value);

export function formatMs(ms: number): string {
  if (ms < 1000) return formatUnit(ms, 'millisecond');
  return ms < 60_000 ? formatUnit(ms / 1000, 'second', 1) : formatUnit(ms / 60_000, 'minute');
}

export const formatCount = (count: number): string =>
  new Intl.NumberFormat(getLanguage(), { notation: 'compact' }).format(count);

/** Without a currency: the prices have the one that the operator chose. */
export const formatCost = (cost: number | undefined): string =>
  cost === undefined
    ? '–'
    : new Intl.NumberFormat(getLanguage(), {
        minimumFractionDigits: 2,
        maximumFractionDigits: 4,
      }).format(cost);

export const formatShare = (share: number): string =>
  new Intl.NumberFormat(getLanguage(), { style: 'percent', maximumFractionDigits: 1 }).format(
    share,
  );

const CAUSES: Readonly<Record<string, TextKey>> = {
  dns: 'operator.cause.dns',
  connection_refused: 'operator.cause.connection_refused',
  connection_lost: 'operator.cause.connection_lost',
  unreachable: 'operator.cause.unreachable',
  tls: 'operator.cause.tls',
  timeout: 'operator.cause.timeout',
  wrong_key: 'operator.cause.wrong_key',
  no_credit: 'operator.cause.no_credit',
  rate_limit: 'operator.cause.rate_limit',
  provider_error: 'operator.cause.provider_error',
  request_rejected: 'operator.cause.request_rejected',
  host_lost: 'operator.cause.host_lost',
};

/** Why something failed, in the language of the operator; an unknown cause as the server describes it. */
export function describeCause(cause: string, text = cause): string {
  const key = CAUSES[cause];
  return key ? t(key) : text;
}
