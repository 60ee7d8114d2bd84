import type {
  ActivityPage,
  Approval,
  ApprovalDecided,
  ApprovalDelegation,
  ApprovalList,
  DecideApproval,
  Decision,
  JsonObject,
  QuestionList,
  Receipt,
} from '@sibyl/protocol';
import {
  APPROVE_ABILITY,
  buildDecisionClaims,
  canonicalJson,
  hashJson,
  hashTerms,
  RULES_ABILITY,
  RUN_ABILITY,
  toApprovalId,
  toOracleResource,
} from '@sibyl/protocol/decisions';
import { publicKeyFromDid } from '@sibyl/ucan/browser';
import { OracleClientError, toSigningError } from './errors.js';
import type { HttpClient } from './http/http-client.js';
import type { ActivityQuery, Approvals, Rules, UserQuestions } from './oracle-client.js';
import type { OracleSigner } from './signers/signer.js';

/** How long a signed decision can be sent. */
const DECISION_SECONDS = 120;
/** How long signed rules can be sent; they stay in force afterwards. */
const RULES_SECONDS = 600;

const toPath = (id: string) => `/approvals/${encodeURIComponent(id)}`;

export function createApprovals(http: HttpClient, signer: OracleSigner): Approvals {
  const decide = async (
    { id, facts, args: originalArgs, delegates }: Approval,
    decision: Decision,
    { args, reason }: { readonly args?: JsonObject; readonly reason?: string },
  ): Promise<ApprovalDecided> => {
    await assertConsistent({ id, facts, args: originalArgs });
    const claims = await buildDecisionClaims({ id, decision, originalArgs, args, reason });
    const invocation = await sign(http, signer, {
      can: APPROVE_ABILITY,
      nb: { ...claims },
      seconds: DECISION_SECONDS,
    });
    const isAsShown = decision === 'approve' && args === undefined;
    const delegation = isAsShown && delegates && (await delegate(http, signer, delegates));
    const body: DecideApproval = {
      ...{ decision, reason, args, invocation },
      ...(delegation && { delegation }),
    };
    return http.requestJson({ method: 'POST', path: toPath(id), body });
  };
  return {
    list: async ({ sessionId, signal } = {}) => {
      const request = { path: '/approvals', query: { sessionId }, signal };
      return (await http.requestJson<ApprovalList>(request)).approvals;
    },
    get: (id, { signal } = {}) => http.requestJson({ path: toPath(id), signal }),
    approve: (approval, options = {}) => decide(approval, 'approve', options),
    deny: (approval, options = {}) => decide(approval, 'deny', options),
    receipt: async (id, { signal } = {}) =>
      (await http.request({ path: `${toPath(id)}/receipt`, signal })).text(),
  };
}

export const createQuestions = (http: HttpClient): UserQuestions => ({
  list: async (sessionId, { signal } = {}) => {
    const request = { path: '/questions', query: { sessionId }, signal };
    return (await http.requestJson<QuestionList>(request)).questions;
  },
  answer: (id, value) => {
    const path = `/questions/${encodeURIComponent(id)}`;
    return http.requestJson({ method: 'POST', path, body: { value } });
  },
});

/** An oracle must not show one call and have another one signed. */
async function assertConsistent({
  id,
  facts,
  args,
}: Pick<Approval, 'id' | 'facts' | 'args'>): Promise<void> {
  if (facts.argsHash === (await hashJson(args)) && id === (await toApprovalId(facts))) return;
  throw new OracleClientError(
    'invalid_reply',
    'Nothing was signed: the id of the approval does not belong to the call that is shown',
  );
}

/** Signs what the approval delegates: turns at this oracle, for exactly what is shown. */
async function delegate(
  http: HttpClient,
  signer: OracleSigner,
  { can, with: resource, terms, expiresInSeconds: seconds }: ApprovalDelegation,
): Promise<string> {
  const { did } = await http.discovery.card();
  const isForOracle = can === RUN_ABILITY && resource.startsWith(`${toOracleResource(did)}:`);
  if (!isForOracle || Object.keys(terms).length === 0)
    throw new OracleClientError(
      'invalid_reply',
      'Nothing was signed: the approval would delegate more than turns with what is shown',
    );
  return sign(http, signer, { can, with: resource, nb: await hashTerms(terms), seconds });
}

export function createRules(http: HttpClient, signer: OracleSigner): Rules {
  return {
    get: ({ signal } = {}) => http.requestJson({ path: '/rules', signal }),
    set: async (rules) => {
      const nb = { rules: rules.map(({ match, effect }) => ({ match, effect })) };
      const token = await sign(http, signer, { can: RULES_ABILITY, nb, seconds: RULES_SECONDS });
      return http.requestJson({ method: 'PUT', path: '/rules', body: { token } });
    },
    delete: async () => {
      await http.requestJson({ method: 'DELETE', path: '/rules' });
    },
  };
}

export const listActivity = (
  http: HttpClient,
  { signal, ...query }: ActivityQuery = {},
): Promise<ActivityPage> => http.requestJson({ path: '/activity', query, signal });

interface Statement {
  readonly can: string;
  /** The oracle, if it is absent. */
  readonly with?: string;
  readonly nb: Parameters<OracleSigner['delegate']>[0]['capabilities'][number]['nb'];
  readonly seconds: number;
}

/** Signs a statement for the oracle that can be sent for some seconds. */
export async function sign(
  http: HttpClient,
  signer: OracleSigner,
  { can, with: resource, nb, seconds }: Statement,
): Promise<string> {
  const { did: audience } = await http.discovery.card();
  const capability = { can, with: resource ?? toOracleResource(audience), ...(nb && { nb }) };
  const expiration = http.discovery.now() + seconds;
  const minted = await signer
    .delegate({ audience, capabilities: [capability], expiration })
    .catch((cause) => {
      throw toSigningError(cause);
    });
  return minted.token;
}

const CONTEXT = 'sibyl receipt 1\n';

/**
 * Checks that a receipt is what the oracle signed, byte for byte, for exactly the call and arguments in it. It does not check
 * the user's own signature: `sibyl receipts verify` does both.
 */
export async function checkReceipt(text: string, approvalId: string): Promise<boolean> {
  const receipt = parseReceipt(text);
  if (!receipt) return false;
  const { signature, ...content } = receipt;
  const { approval, facts, originalArgs } = content;
  const isForCall =
    approval === approvalId &&
    (await toApprovalId(facts)) === approval &&
    (await hashJson(originalArgs)) === facts.argsHash;
  return isForCall && verify(content.oracleKey, CONTEXT + canonicalJson(content), signature);
}

function parseReceipt(text: string): Receipt | undefined {
  try {
    const receipt = JSON.parse(text);
    return canonicalJson(receipt) === text ? receipt : undefined;
  } catch {
    return undefined;
  }
}

async function verify(keyDid: string, text: string, signature: string): Promise<boolean> {
  const { ok: raw } = publicKeyFromDid(keyDid);
  if (!raw) return false;
  const key = await crypto.subtle.importKey('raw', Uint8Array.from(raw), 'Ed25519', false, [
    'verify',
  ]);
  const bytes = Uint8Array.from(atob(signature), (character) => character.charCodeAt(0));
  return crypto.subtle.verify('Ed25519', key, bytes, new TextEncoder().encode(text));
}
