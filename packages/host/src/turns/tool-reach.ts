import type { Tool, TurnContext } from '@sibyl/plugin-kit';
import type { AccessKeyCaveats } from '@sibyl/protocol';

/** The reach of a tool; a tool of the program that sent the message uses nothing that is stored. */
export type ToolReach = Tool['reach'] | 'client';

interface TurnTerms {
  readonly caveats?: Pick<AccessKeyCaveats, 'session' | 'tools'> | undefined;
  /** The person that the session of the turn belongs to. */
  readonly subUser?: string | undefined;
}

/** What a turn may use of what is stored for its user, by its access key and its session. */
export class TurnReach {
  /** The names of the only tools that the turn may use. */
  private readonly named: readonly string[] | undefined;
  readonly reach: TurnContext['reach'];

  constructor({ caveats = {}, subUser }: TurnTerms) {
    this.named = caveats.tools;
    const own = subUser === undefined ? 'user' : 'sub-user';
    this.reach = caveats.session === undefined ? own : 'session';
  }

  /** Whether plugins contribute less than to other turns. */
  get isLimited(): boolean {
    return this.named !== undefined || this.reach !== 'user';
  }

  /** What does not say how far it reaches may reach everything. */
  permitsTool(name: string, reach: ToolReach): boolean {
    if (reach === 'client') return true;
    return this.covers(reach) && (this.named?.includes(name) ?? true);
  }

  /** Whether a plugin may add what reaches that to a turn unasked. */
  permitsAddition(reach: Tool['reach']): boolean {
    return this.covers(reach) && (this.named === undefined || reach !== undefined);
  }

  private covers(reach: Tool['reach']): boolean {
    switch (this.reach) {
      case 'user':
        return true;
      case 'sub-user':
        return reach !== undefined;
      case 'session':
        return reach === 'session';
      default:
        this.reach satisfies never;
        return false;
    }
  }
}
