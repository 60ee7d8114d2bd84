import type { UserPreferences } from '@sibyl/protocol';
import { type Capability, describeCapability } from './capability.js';
import { currentTimeLine } from './current-time-line.js';
import { operatingPrinciples } from './operating-principles.js';
import { plainBlock, plainLine, quoteLine } from './plain-text.js';
import { preferenceLines } from './preference-lines.js';

const NAME_LIMIT = 80;
const LINE_LIMIT = 512;
const INSTRUCTIONS_LIMIT = 50_000;

/** What the user has open while they write. */
export interface CurrentEntity {
  readonly currentEntityDid?: string | undefined;
  readonly spaceId?: string | undefined;
  readonly editorRoomId?: string | undefined;
}

/** A service that is down, and what cannot be done meanwhile. */
export interface DegradedService {
  readonly name: string;
  readonly missing: string;
}

/** All a system prompt is made of. */
export interface PromptParts {
  readonly oracleName: string;
  readonly capabilities?: readonly Capability[] | undefined;
  /** The operator's own text. */
  readonly instructions?: string | undefined;
  readonly preferences?: UserPreferences | undefined;
  /** ISO 8601. */
  readonly currentTime: string;
  /** IANA name. */
  readonly timezone: string;
  readonly entity?: CurrentEntity | undefined;
  readonly degraded?: readonly DegradedService[] | undefined;
}

/** Writes the system prompt of a turn; a section with nothing to say is left out. */
export function composePrompt(parts: PromptParts): string {
  const {
    capabilities = [],
    instructions = '',
    preferences = {},
    entity = {},
    degraded = [],
  } = parts;
  const sections = [
    identity(parts),
    section('What you can do', capabilities.map(describeCapability)),
    section(
      'Operating principles',
      operatingPrinciples.map((line) => `- ${line}`),
    ),
    section('Instructions of the operator', [plainBlock(instructions, INSTRUCTIONS_LIMIT)]),
    section('What the user prefers', preferenceLines(preferences)),
    section('What the user has open', entityLines(entity)),
    section('Not available now', degraded.map(degradedLine)),
    // Last: providers keep what a prompt begins with for as long as it stays the same.
    section('Time', [currentTimeLine(parts.currentTime, parts.timezone)]),
  ];
  return sections.filter(Boolean).join('\n\n');
}

function section(heading: string, lines: readonly string[]): string {
  const text = lines.filter(Boolean).join('\n');
  return text && `## ${heading}\n${text}`;
}

function identity({ oracleName, preferences }: PromptParts): string {
  const oracle = plainLine(oracleName, NAME_LIMIT);
  const name = preferences?.agentName;
  if (!name) return `You are ${oracle}, an AI agent that helps its user.`;
  return `You are ${quoteLine(name, NAME_LIMIT)}, an AI agent that helps its user.`;
}

function entityLines(entity: CurrentEntity): string[] {
  const { currentEntityDid, spaceId, editorRoomId } = entity;
  return [
    currentEntityDid ? `Entity: ${quoteLine(currentEntityDid, LINE_LIMIT)}` : '',
    spaceId ? `Space: ${quoteLine(spaceId, LINE_LIMIT)}` : '',
    editorRoomId ? `Room of the editor: ${quoteLine(editorRoomId, LINE_LIMIT)}` : '',
  ];
}

function degradedLine({ name, missing }: DegradedService): string {
  return `- ${plainLine(name, LINE_LIMIT)}: ${plainLine(missing, LINE_LIMIT)}`;
}
