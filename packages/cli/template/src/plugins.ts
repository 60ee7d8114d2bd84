import { dice } from './dice.js';

/** The plugins of this oracle, beside those that come with Sibyl. */
export const plugins = [dice];
