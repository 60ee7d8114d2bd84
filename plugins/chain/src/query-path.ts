import { z } from 'zod';

/** The characters of a path, apart from those that begin a query or a fragment. */
const PATH = /^\/(?!\/)(?:[\w.~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*$/;
/** A segment that leads elsewhere, also when its dots are written as escapes. */
const DOTS = /(?:^|\/)(?:\.|%2e){1,2}(?:\/|$)/i;

/** A path below the gateway: never an address of its own, never one that climbs out. */
export const QueryPath = z
  .string()
  .max(1000)
  .regex(PATH, {
    error:
      'must be a path such as /ixo/entity/{id}: no host, no query (that goes into query), anything unusual percent-encoded',
  })
  .refine((path) => !DOTS.test(path), { error: 'must have no . or .. segments' });
