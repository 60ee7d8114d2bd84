import { Controller, Get, Inject } from '@nestjs/common';
import { Describe } from '@sibyl/plugin-kit';
import type { LoadedPlugin } from '@sibyl/plugin-kit/host';
import {
  DidDocument,
  ModelList,
  OracleCard,
  OracleError,
  type PluginInfo,
  PluginList,
} from '@sibyl/protocol';
import { OracleIdentity } from '../auth/oracle-identity.js';
import { OFFLINE } from '../config/models-config.js';
import type { Models } from '../models/models.js';
import { understands } from '../models/offline/intents.js';
import { Public } from './ucan-guard.js';

/** Paths or addresses from the shared state of plugins, under the keys `page` and `gateway`. */
interface Links {
  readonly page?: string;
  readonly gateway?: string;
}

/** What the host publishes about itself. */
export class HostFacts {
  readonly links: Links;

  constructor(
    readonly version: string,
    readonly features: readonly string[],
    shared: Readonly<Record<string, unknown>>,
  ) {
    this.links = { ...readLink(shared, 'page'), ...readLink(shared, 'gateway') };
  }
}

/** What a client needs before it can sign. */
@Public()
@Controller('.well-known')
export class DiscoveryController {
  constructor(
    private readonly oracle: OracleIdentity,
    private readonly facts: HostFacts,
  ) {}

  @Get('oracle.json')
  @Describe({ summary: "The oracle's DID, name and features", reply: OracleCard })
  card(): OracleCard {
    const { did, name, entityDid } = this.oracle;
    const { version, features, links } = this.facts;
    const entity = entityDid && { entityDid };
    return { did, name, ...entity, version, ...links, features: [...features] };
  }

  @Get('did.json')
  @Describe({
    summary: "The oracle's DID document, when its DID is a did:web",
    reply: DidDocument,
    errors: ['not_found'],
  })
  didDocument(): DidDocument {
    if (!this.oracle.did.startsWith('did:web:')) {
      throw new OracleError('not_found', { message: `${this.oracle.did} is not a did:web` });
    }
    return buildDidDocument(this.oracle);
  }
}

/** The DID document of an oracle that acts as a did:web. */
function buildDidDocument({ did, signer }: OracleIdentity): DidDocument {
  const keyId = `${did}#key-1`;
  return {
    '@context': ['https://www.w3.org/ns/did/v1', 'https://w3id.org/security/multikey/v1'],
    id: did,
    verificationMethod: [
      {
        id: keyId,
        type: 'Multikey',
        controller: did,
        publicKeyMultibase: signer.keyDid.slice('did:key:'.length),
      },
    ],
    authentication: [keyId],
    assertionMethod: [keyId],
    capabilityInvocation: [keyId],
    capabilityDelegation: [keyId],
  };
}

function readLink(shared: Readonly<Record<string, unknown>>, key: keyof Links): Links {
  const place = shared[key];
  return typeof place === 'string' ? { [key]: place } : {};
}

/** The models are an interface, which Nest cannot inject by class. */
export const MODELS = Symbol('models');

@Public()
@Controller('models')
export class ModelsController {
  constructor(@Inject(MODELS) private readonly models: Models) {}

  @Get()
  @Describe({ summary: 'The models that a message may select', reply: ModelList })
  list(): ModelList {
    return this.models.list();
  }
}

/** The plugins are plain objects, which Nest cannot inject by class. */
export const PLUGINS = Symbol('plugins');

@Public()
@Controller('plugins')
export class PluginsController {
  constructor(
    @Inject(PLUGINS) private readonly plugins: readonly LoadedPlugin[],
    @Inject(MODELS) private readonly models: Models,
  ) {}

  @Get()
  @Describe({ summary: 'What this oracle can do, by plugin', reply: PluginList })
  list(): PluginList {
    const plugins = this.plugins.flatMap(toPluginInfo);
    if (this.models.list().default !== OFFLINE) return { plugins };
    // Pages suggest the examples, and the rules of the offline model cannot answer all of them.
    const toUsable = (info: PluginInfo) => ({
      ...info,
      examples: info.examples.filter(understands),
    });
    return { plugins: plugins.map(toUsable) };
  }
}

/** Silent plugins are not listed. */
function toPluginInfo({ name, manifest }: LoadedPlugin): PluginInfo[] {
  const { title, summary, category, visibility, stability, examples = [], tags = [] } = manifest;
  const { permissions } = manifest;
  if (visibility === 'silent') return [];
  return [
    {
      ...{ name, title, summary, category, visibility, stability, examples, tags },
      ...(permissions && { permissions }),
    },
  ];
}
