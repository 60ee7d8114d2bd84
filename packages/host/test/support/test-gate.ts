import type { GateRequest, MessageGate, ModelUse, TurnHold } from '@sibyl/plugin-kit';
import { OracleError } from '@sibyl/protocol';
import { beforeEach, expect } from 'vitest';

/** A gate with replaceable functions that records its calls. */
export class TestGate implements MessageGate {
  readonly asked: GateRequest[] = [];
  readonly settled: { readonly requestId: string; readonly used: readonly ModelUse[] }[] = [];
  decide: (request: GateRequest) => unknown = () => undefined;
  check: (used: readonly ModelUse[]) => void | Promise<void> = () => undefined;
  settle: () => void | Promise<void> = () => undefined;

  /** The usage of the only turn of the test, once it is settled. */
  async settledOnce(): Promise<readonly ModelUse[] | undefined> {
    await expect.poll(() => this.settled.length).toBe(1);
    return this.settled[0]?.used;
  }

  async admit(request: GateRequest): Promise<TurnHold | undefined> {
    this.asked.push(request);
    const { requestId } = request;
    const hold = {
      check: (used: readonly ModelUse[]) => this.check(used),
      settle: async (used: readonly ModelUse[]) => {
        this.settled.push({ requestId, used });
        await this.settle();
      },
    };
    return ((await this.decide(request)) as TurnHold | undefined) ?? hold;
  }
}

/** A new gate for every test, so that a late settlement does not affect the next test. */
export function useGate(): { current: TestGate } & MessageGate {
  const holder = {
    current: new TestGate(),
    admit: (request: GateRequest) => holder.current.admit(request),
  };
  beforeEach(() => {
    holder.current = new TestGate();
  });
  return holder;
}

export function outOfCredit(claims: readonly string[]): OracleError {
  return new OracleError('insufficient_credit', { fields: { claims, outstandingClaims: claims } });
}
