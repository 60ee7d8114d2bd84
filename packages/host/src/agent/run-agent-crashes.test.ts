import { expect, it } from 'vitest';
import { scale } from '../../../../scripts/test-scale.js';
import {
  agentTool,
  listFinishedCalls,
  requestTo,
  tool,
} from '../../test/support/agent/agent-requests.js';
import { MemoryJournal, runUntilCrash } from '../../test/support/agent/memory-journal.js';
import { findProviderErrors } from '../../test/support/agent/provider-rules.js';
import { Random } from '../../test/support/agent/random.js';
import { callTools, ScriptedModel, say } from '../../test/support/agent/scripted-model.js';
import type { ModelCall, ModelMessage } from '../models/model.js';
import type { AgentRequest, AgentTool } from './agent.js';
import { type InterruptAnswer, PausedError } from './steps.js';

const SEEDS = scale(1500, 150);
const MAX_CRASHES = 6;

/** What a model wants, step by step; each call has an input that no other has. */
type Script = readonly (readonly ScriptedCall[])[];

interface ScriptedCall {
  readonly key: string;
  readonly kind: 'work' | 'fail' | 'ask' | 'agent';
  /** How often it asks. */
  readonly questions: number;
  readonly script: Script;
}

function writeScript(random: Random, path: string, depth: number): Script {
  return Array.from({ length: 1 + random.below(3) }, (_, step) =>
    Array.from({ length: 1 + random.below(3) }, (__, i): ScriptedCall => {
      const key = `${path}s${step}c${i}`;
      const kind = random.pick(['work', 'fail', 'ask', depth > 0 ? 'agent' : 'work'] as const);
      const script = kind === 'agent' ? writeScript(random, `${key}-`, depth - 1) : [];
      return { key, kind, questions: 1 + random.below(2), script };
    }),
  );
}

/** The world outside of the host, which remembers every effect, and a host that crashes now and then. */
class World {
  readonly effects = new Map<string, number>();
  private crashesLeft: number;
  private eventsLeft = 0;
  journal = new MemoryJournal();

  /** What the models were sent. */
  readonly conversations: (readonly ModelMessage[])[] = [];

  constructor(
    private readonly random: Random,
    private readonly script: Script,
  ) {
    this.crashesLeft = random.below(MAX_CRASHES + 1);
    this.plan();
  }

  get hasCrashes(): boolean {
    return this.crashesLeft > 0;
  }

  /** Runs one attempt; `undefined` if the host crashed. */
  attempt() {
    const { journal } = this;
    journal.onEvent = () => this.pass();
    return runUntilCrash(this.createRequest(this.script), journal);
  }

  continueWith(answers: Readonly<Record<string, InterruptAnswer>>): void {
    this.journal = this.journal.next(answers);
    this.plan();
  }

  private plan(): void {
    this.eventsLeft = this.crashesLeft > 0 ? this.random.below(20) : Number.POSITIVE_INFINITY;
  }

  /** One event of the host: it may crash here, and may store what it has. */
  private pass(): void {
    const { journal } = this;
    if (journal.isDead) return;
    this.eventsLeft -= 1;
    if (this.random.below(4) === 0) journal.flush();
    if (this.eventsLeft > 0) return;
    this.crashesLeft -= 1;
    journal.crash();
  }

  private async freezeIfDead(): Promise<void> {
    await new Promise((resolve) => setImmediate(resolve));
    this.pass();
    if (this.journal.isDead) await new Promise<never>(() => undefined);
  }

  private createRequest(script: Script): AgentRequest {
    const step = ({ messages }: ModelCall) => {
      this.conversations.push(messages);
      const calls = script[messages.filter(({ role }) => role === 'assistant').length];
      return calls ? callTools(...calls.map(toModelCall)) : say('Done.');
    };
    const model = new ScriptedModel(...Array.from({ length: script.length + 1 }, () => step));
    const calls = script.flat();
    const limits = { steps: 1000, contextTokens: 100_000 };
    return requestTo(model, { tools: calls.map((call) => this.createTool(call)), limits });
  }

  private createTool({ key, kind, questions, script }: ScriptedCall): AgentTool {
    if (kind === 'agent') return agentTool(key, () => this.createRequest(script));
    return tool(key, async (_, call) => {
      await this.freezeIfDead();
      for (let n = 0; kind === 'ask' && n < questions; n++)
        call.interrupt({ kind: 'confirmation', schema: {}, data: n });
      this.effects.set(key, (this.effects.get(key) ?? 0) + 1);
      await this.freezeIfDead();
      if (kind === 'fail') throw new Error('It failed.');
      return 'ok';
    });
  }
}

const toModelCall = ({ key }: ScriptedCall) => [key, key, {}] as const;

/** Answers at least one of the questions. */
function answerSome(random: Random, { interrupts }: PausedError): Record<string, InterruptAnswer> {
  const statuses = ['answered', 'answered', 'answered', 'expired', 'cancelled'] as const;
  const chosen = interrupts.filter((_, i) => i === 0 || random.below(2) === 0);
  return Object.fromEntries(
    chosen.map(({ key }) => [key, { status: random.pick(statuses), value: true }]),
  );
}

/** Every call of the script with its result. */
function listStoredCalls({ stored }: MemoryJournal) {
  const wanted = stored.flatMap((step) =>
    step.type === 'model' ? (step.message.toolCalls ?? []).map(({ id }) => id) : [],
  );
  const results = stored.flatMap((step) => (step.type === 'result' ? [step.call] : []));
  return { wanted, results };
}

async function runScript(seed: number) {
  const random = new Random(seed);
  const script = writeScript(random, '', 2);
  const world = new World(random, script);
  const hadCrashes = world.hasCrashes;
  for (;;) {
    const ended = await world.attempt();
    const shown = listFinishedCalls(ended?.parts ?? []).map(({ id }) => id);
    expect(new Set(shown).size).toBe(shown.length);
    if (ended && !(ended.thrown instanceof PausedError)) {
      expect(ended.thrown).toBeUndefined();
      world.journal.flush();
      return { world, hadCrashes };
    }
    const paused = ended?.thrown;
    world.continueWith(paused instanceof PausedError ? answerSome(random, paused) : {});
  }
}

it('runAgent has one result for every call and no effect twice, wherever its host crashes', async () => {
  for (let seed = 1; seed <= SEEDS; seed++) {
    const { world, hadCrashes } = await runScript(seed);
    const { wanted, results } = listStoredCalls(world.journal);
    const context = `seed ${seed}`;
    expect(results.map(({ id }) => id).sort(), context).toEqual(wanted.sort());
    expect(world.conversations.flatMap(findProviderErrors), context).toEqual([]);
    for (const [key, count] of world.effects) expect(count, `${context}, ${key}`).toBe(1);
    for (const { id, status, output } of results) {
      const hasEffect = world.effects.has(id);
      if (output === '"ok"')
        expect([status, hasEffect], `${context}, ${id}`).toEqual(['done', true]);
      if (!hadCrashes) expect(output, `${context}, ${id}`).not.toContain('outcome is unknown');
    }
  }
});
