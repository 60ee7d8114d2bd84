import { decode } from './decode.js';

/** The fields of a Timestamp or Duration; the last of each counts. */
function selectFields(bytes: Uint8Array) {
  const all = decode(bytes);
  const field = (no: number) => (all.findLast((one) => one.no === no)?.value ?? 0n) as bigint;
  return { seconds: BigInt.asIntN(64, field(1)), nanos: BigInt.asIntN(32, field(2)) };
}

export function timestampJson(bytes: Uint8Array): string {
  const { seconds, nanos } = selectFields(bytes);
  return `"${dateText(seconds)}${trimmed(nanos, /(000){1,2}$/)}Z"`;
}

/** Without trailing zeros, as Go prints it. */
export function goTimeJson(bytes: Uint8Array): string {
  const { seconds, nanos } = selectFields(bytes);
  return `"${dateText(seconds)}${trimmed(nanos, /0+$/)}Z"`;
}

export function durationJson(bytes: Uint8Array): string {
  const { seconds, nanos } = selectFields(bytes);
  const isNegative = seconds < 0n || nanos < 0n;
  const size = (value: bigint) => (value < 0n ? -value : value);
  return `"${isNegative ? '-' : ''}${size(seconds)}${trimmed(size(nanos), /(000){1,2}$/)}s"`;
}

function dateText(seconds: bigint): string {
  return new Date(Number(seconds) * 1000).toISOString().slice(0, 19);
}

function trimmed(nanos: bigint, zeros: RegExp): string {
  return nanos === 0n ? '' : `.${String(nanos).padStart(9, '0').replace(zeros, '')}`;
}
