import type { Command } from '../command.js';
import { callers } from './callers.js';
import { chat } from './chat.js';
import { credits } from './credits.js';
import { delegate } from './delegate.js';
import { doctor } from './doctor.js';
import { gateway } from './gateway.js';
import { invite } from './invite.js';
import { key } from './key.js';
import { newOracle } from './new.js';
import { plugins } from './plugins.js';
import { start } from './start.js';
import { token } from './token.js';

/** Every command, in the order help shows them. */
export const commands: readonly Command[] = [
  start,
  newOracle,
  chat,
  key,
  token,
  delegate,
  invite,
  callers,
  doctor,
  plugins,
  credits,
  gateway,
];
