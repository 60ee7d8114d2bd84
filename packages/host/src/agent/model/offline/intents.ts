import type { Intent, OfflineReply, OfflineRequest } from './intent.js';
import { callNamedTools } from './named-tool.js';
import { count, introduce, listCapabilities, tellTime } from './small-talk.js';
import { reportToolResults } from './tool-report.js';
import { changePreferences, rememberFact } from './user-wishes.js';
import { makeSummary, makeTitle } from './utility-replies.js';

/** All rules; the first that has a reply gives it, and the last always has one. */
const intents: readonly Intent[] = [
  makeTitle,
  makeSummary,
  callNamedTools,
  reportToolResults,
  listCapabilities,
  changePreferences,
  rememberFact,
  tellTime,
  count,
  introduce,
];

export function replyTo(request: OfflineRequest): OfflineReply {
  for (const intent of intents) {
    const reply = intent(request);
    if (reply) return reply;
  }
  return {};
}
