import { createSafeFetch, type SafeFetch } from '@sibyl/safe-fetch';
import type { Config } from '../config/config.js';

/** The way out for plugins: the public internet, and what the operator has opened beyond it. */
export const createPluginFetch = ({ outgoingAllow }: Config): SafeFetch =>
  createSafeFetch({ allow: outgoingAllow });
