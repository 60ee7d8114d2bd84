import { OracleError } from '@sibyl/protocol';
import type { OracleUcan } from '../plugin-context.js';
import type { TurnUcan, WantedCapability } from '../turn-ucan.js';
import { TEST_ORACLE } from './test-options.js';

interface InvocationClaims extends WantedCapability {
  readonly issuer: string;
  readonly audience?: string;
}

let minted = 0;

/** Stands for a signed invocation: says what it is for, and counts once where that is asked. */
export function testInvocation(claims: InvocationClaims): string {
  minted += 1;
  return Buffer.from(JSON.stringify({ ...claims, nonce: minted })).toString('base64');
}

const didOf = async (serviceUrl: string) =>
  `did:web:${new URL(serviceUrl).host.replaceAll(':', '%3A')}`;

/** What the oracle signs for itself, and whose invocations it takes. */
export function createOracleUcan(): OracleUcan {
  const spent = new Set<string>();
  return {
    mintInvocation: async ({ audience, can, with: resource }) =>
      testInvocation({ issuer: TEST_ORACLE, audience, can, with: resource }),
    resolveServiceDid: didOf,
    acceptOnce: async (token, wanted) => {
      const claims = claimsOf(token);
      const isFor = (['issuer', 'can', 'with'] as const).every(
        (key) => claims[key] === wanted[key],
      );
      if (!isFor) return { fault: 'the invocation is not valid for this call' };
      if (spent.has(token)) return { fault: 'the invocation was used before' };
      spent.add(token);
      return { ok: true };
    },
  };
}

function claimsOf(token: string): Partial<InvocationClaims> {
  try {
    return JSON.parse(Buffer.from(token, 'base64').toString()) ?? {};
  } catch {
    return {};
  }
}

/** What users have delegated, as a test says it. */
export function createTurnUcan(delegated: readonly WantedCapability[]): TurnUcan {
  const isGranted = (wanted: WantedCapability) =>
    delegated.some(({ can, with: resource }) => can === wanted.can && resource === wanted.with);
  const assertGranted = (wanted: WantedCapability) => {
    if (isGranted(wanted)) return;
    throw new OracleError('forbidden', {
      message: `The user has not delegated ${wanted.can} at ${wanted.with}`,
    });
  };
  return {
    hasSigningKey: () => true,
    hasCapability: async (wanted) => isGranted(wanted),
    requireCapability: async (wanted) => assertGranted(wanted),
    mintInvocation: async ({ audience, can, with: resource }) => {
      assertGranted({ can, with: resource });
      return testInvocation({ issuer: TEST_ORACLE, audience, can, with: resource });
    },
    resolveServiceDid: didOf,
  };
}
