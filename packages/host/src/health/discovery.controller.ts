import { Controller, Get } from '@nestjs/common';
import { Describe } from '@sibyl/plugin-kit';
import { DidDocument, OracleCard, OracleError } from '@sibyl/protocol';
import { OracleIdentity } from '../auth/oracle-identity.js';
import { Public } from '../auth/public-route.js';
import { didDocumentOf } from './did-document.js';
import { HostFacts } from './host-facts.js';

/** What a client needs before it can sign (contract B9). */
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
    const { version, features, places } = this.facts;
    const entity = entityDid && { entityDid };
    return { did, name, ...entity, version, ...places, features: [...features] };
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
    return didDocumentOf(this.oracle);
  }
}
