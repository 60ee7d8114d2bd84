import { z } from 'zod';

const SlackId = z.string().regex(/^[A-Z0-9]{1,40}$/i);
const TriggerId = z.string().min(1).max(200);
const ResponseUrl = z.url({ protocol: /^https?$/ }).max(2000);

const Command = z.object({
  command: z.string().min(1).max(100),
  text: z.string().max(20_000).default(''),
  team_id: SlackId,
  user_id: SlackId,
  channel_id: SlackId,
  channel_name: z.string().default(''),
  trigger_id: TriggerId,
  response_url: ResponseUrl,
});

const BlockActions = z.object({
  type: z.literal('block_actions'),
  team: z.object({ id: SlackId }),
  user: z.object({ id: SlackId }),
  channel: z.object({ id: SlackId }).optional(),
  message: z.object({ ts: z.string(), thread_ts: z.string().optional() }).optional(),
  trigger_id: TriggerId,
  response_url: ResponseUrl.optional(),
  actions: z
    .array(z.object({ action_id: z.string().max(255), value: z.string().max(2000).default('') }))
    .min(1),
});

const Input = z.object({
  value: z.string().nullish(),
  selected_option: z.object({ value: z.string() }).nullish(),
});

const ViewSubmission = z.object({
  type: z.literal('view_submission'),
  team: z.object({ id: SlackId }),
  user: z.object({ id: SlackId }),
  view: z.object({
    id: z.string().max(200),
    callback_id: z.string().max(255),
    private_metadata: z.string().max(3000).default(''),
    /** By block, then by action. */
    state: z.object({ values: z.record(z.string(), z.record(z.string(), Input)) }),
  }),
});

/** Who did something in Slack, and where to answer. */
interface Actor {
  readonly team: string;
  readonly user: string;
}

/** A slash command. */
export interface SlackCommand extends Actor {
  readonly kind: 'command';
  /** As the app calls it, with the slash. */
  readonly command: string;
  readonly text: string;
  readonly channel: string;
  readonly isDirect: boolean;
  readonly triggerId: string;
  readonly responseUrl: string;
}

/** A pressed button. */
export interface SlackAction extends Actor {
  readonly kind: 'action';
  readonly actionId: string;
  readonly value: string;
  readonly channel: string | undefined;
  readonly thread: string | undefined;
  /** The message with the button. */
  readonly ts: string | undefined;
  readonly triggerId: string;
  readonly responseUrl: string | undefined;
}

/** A modal that was submitted. */
export interface SlackSubmission extends Actor {
  readonly kind: 'submission';
  readonly viewId: string;
  readonly callbackId: string;
  readonly metadata: string;
  /** By block; empty fields are missing. */
  readonly fields: Readonly<Record<string, string>>;
}

export type Interaction = SlackCommand | SlackAction | SlackSubmission;

/** Reads a slash command; undefined if it is none. */
export function readCommand(fields: unknown): SlackCommand | undefined {
  const { data } = Command.safeParse(fields);
  return (
    data && {
      kind: 'command',
      command: data.command,
      text: data.text.trim(),
      team: data.team_id,
      user: data.user_id,
      channel: data.channel_id,
      isDirect: data.channel_name === 'directmessage',
      triggerId: data.trigger_id,
      responseUrl: data.response_url,
    }
  );
}

/** Reads a pressed button or a submitted modal; undefined for what has no use here. */
export function readInteraction(payload: unknown): SlackAction | SlackSubmission | undefined {
  const { data: pressed } = BlockActions.safeParse(payload);
  if (pressed) return toAction(pressed);
  const { data: submitted } = ViewSubmission.safeParse(payload);
  return submitted && toSubmission(submitted);
}

function toAction(pressed: z.infer<typeof BlockActions>): SlackAction | undefined {
  const { team, user, channel, message, trigger_id, response_url, actions } = pressed;
  const [action] = actions;
  return (
    action && {
      kind: 'action',
      team: team.id,
      user: user.id,
      actionId: action.action_id,
      value: action.value,
      channel: channel?.id,
      thread: message?.thread_ts,
      ts: message?.ts,
      triggerId: trigger_id,
      responseUrl: response_url,
    }
  );
}

function toSubmission({ team, user, view }: z.infer<typeof ViewSubmission>): SlackSubmission {
  const fields = Object.entries(view.state.values).flatMap(([block, inputs]) => {
    const [input] = Object.values(inputs);
    const text = (input?.value ?? input?.selected_option?.value ?? '').trim();
    return text ? [[block, text] as const] : [];
  });
  return {
    kind: 'submission',
    team: team.id,
    user: user.id,
    viewId: view.id,
    callbackId: view.callback_id,
    metadata: view.private_metadata,
    fields: Object.fromEntries(fields),
  };
}
