import { Controller, Get, Res } from '@nestjs/common';
import { Describe } from '@sibyl/plugin-kit';
import { Health, Landing } from '@sibyl/protocol';
import type { Response } from 'express';
import { OracleIdentity } from '../auth/oracle-identity.js';
import { Public } from '../auth/public-route.js';
import { StorePulse } from '../store/store-pulse.js';
import { HostFacts } from './host-facts.js';

@Public()
@Controller()
export class HealthController {
  constructor(
    private readonly oracle: OracleIdentity,
    private readonly pulse: StorePulse,
    private readonly facts: HostFacts,
  ) {}

  @Get()
  @Describe({ summary: 'What this is', reply: Landing })
  landing(): Landing {
    const { page } = this.facts.places;
    const talk = page ? `; talk to it at ${page}` : '';
    const message = `${this.oracle.name} is running${talk}; its interface is described at /docs`;
    return { status: 'ok', message, timestamp: new Date().toISOString() };
  }

  @Get('health')
  @Describe({
    summary: 'Whether the host can serve; 503 when its store does not answer',
    reply: Health,
    otherReplies: { 503: { when: 'The store does not answer', reply: Health } },
  })
  async health(@Res({ passthrough: true }) response: Response): Promise<Health> {
    const isAlive = await this.pulse.isAlive();
    if (!isAlive) response.status(503);
    return { status: isAlive ? 'ok' : 'unavailable', timestamp: new Date().toISOString() };
  }
}
