import { z } from 'zod';
import { Did, Timestamp } from './identifiers.js';

/** Reply of `GET /.well-known/oracle.json`: what a client needs before it can sign. */
export const OracleCard = z
  .object({
    did: Did,
    name: z.string(),
    entityDid: Did.optional(),
    version: z.string(),
    page: z.string().optional(),
    gateway: z.string().optional(),
    features: z.array(z.string()),
  })
  .meta({ id: 'OracleCard' });
export type OracleCard = z.infer<typeof OracleCard>;

/** Reply of `GET /.well-known/did.json` when the oracle's DID is a did:web. */
export const DidDocument = z
  .object({
    '@context': z.array(z.string()),
    id: Did,
    verificationMethod: z.array(
      z.object({
        id: z.string(),
        type: z.string(),
        controller: Did,
        publicKeyMultibase: z.string(),
      }),
    ),
    authentication: z.array(z.string()),
    assertionMethod: z.array(z.string()),
    capabilityInvocation: z.array(z.string()),
    capabilityDelegation: z.array(z.string()),
  })
  .meta({ id: 'DidDocument' });
export type DidDocument = z.infer<typeof DidDocument>;

/** Reply of `GET /`. */
export const Landing = z
  .object({ status: z.literal('ok'), message: z.string(), timestamp: Timestamp })
  .meta({ id: 'Landing' });
export type Landing = z.infer<typeof Landing>;

/** Reply of `GET /health`. */
export const Health = z
  .object({ status: z.enum(['ok', 'unavailable']), timestamp: Timestamp })
  .meta({ id: 'Health' });
export type Health = z.infer<typeof Health>;

const ReadinessCheck = z
  .object({
    status: z.enum(['ok', 'failing', 'unknown']),
    message: z.string(),
    since: Timestamp.optional().describe('Since when it fails'),
  })
  .meta({ id: 'ReadinessCheck' });
export type ReadinessCheck = z.infer<typeof ReadinessCheck>;

/** Reply of `GET /health/ready`; `not_ready` comes with status 503. */
export const Readiness = z
  .object({
    status: z.enum(['ready', 'not_ready']),
    timestamp: Timestamp,
    checks: z.object({
      host: ReadinessCheck,
      store: ReadinessCheck,
      disk: ReadinessCheck,
      model: ReadinessCheck,
      plugins: ReadinessCheck,
    }),
  })
  .meta({ id: 'Readiness' });
export type Readiness = z.infer<typeof Readiness>;

/** A model this host can answer with. */
export const ModelInfo = z
  .object({
    id: z.string(),
    label: z.string(),
    provider: z.string(),
    isDefault: z.boolean(),
    vision: z.boolean(),
    tools: z.boolean(),
  })
  .meta({ id: 'ModelInfo' });
export type ModelInfo = z.infer<typeof ModelInfo>;

/** Reply of `GET /models`. */
export const ModelList = z
  .object({ models: z.array(ModelInfo), default: z.string() })
  .meta({ id: 'ModelList' });
export type ModelList = z.infer<typeof ModelList>;

/** Something that a plugin needs from a user: a capability to delegate, and why. */
export const PluginPermission = z
  .object({
    can: z
      .string()
      .regex(/^[^\s/*]+\/\S+$/, { error: 'must be one ability, such as claim/read' })
      .max(200),
    with: z
      .string()
      .min(1)
      .max(500)
      .default('{user}')
      .describe('The resource; `{user}` represents the DID of the user'),
    title: z.string().trim().min(1).max(200).describe('What the user allows, in their words'),
    reason: z.string().trim().min(1).max(500).describe('Why the plugin needs it'),
  })
  .meta({ id: 'PluginPermission' });
export type PluginPermission = z.infer<typeof PluginPermission>;

/** A plugin as its users may know it. */
export const PluginInfo = z
  .object({
    name: z.string(),
    title: z.string(),
    summary: z.string(),
    category: z.string(),
    visibility: z.enum(['always', 'on-demand']),
    stability: z.enum(['stable', 'beta', 'experimental']),
    examples: z.array(z.string()).describe('Things a user could say'),
    tags: z.array(z.string()),
    permissions: z
      .array(PluginPermission)
      .optional()
      .describe('What it asks its users to delegate'),
  })
  .meta({ id: 'PluginInfo' });
export type PluginInfo = z.infer<typeof PluginInfo>;

/** Reply of `GET /plugins`. */
export const PluginList = z.object({ plugins: z.array(PluginInfo) }).meta({ id: 'PluginList' });
export type PluginList = z.infer<typeof PluginList>;
