import { Controller, Get, Res } from '@nestjs/common';
import { Describe } from '@sibyl/plugin-kit';
import { Health, Landing, Readiness } from '@sibyl/protocol';
import type { Response } from 'express';
import { OracleIdentity } from '../auth/oracle-identity.js';
import { HostFacts } from './discovery.controller.js';
import { ReadinessChecks } from './readiness.js';
import { Public } from './ucan-guard.js';

@Public()
@Controller()
export class HealthController {
  constructor(
    private readonly oracle: OracleIdentity,
    private readonly readiness: ReadinessChecks,
    private readonly facts: HostFacts,
  ) {}

  @Get()
  @Describe({ summary: 'Name and status of this host', reply: Landing })
  landing(): Landing {
    const { page } = this.facts.links;
    const talk = page ? `; talk to it at ${page}` : '';
    const message = `${this.oracle.name} is running${talk}; its API is described at /docs`;
    return { status: 'ok', message, timestamp: new Date().toISOString() };
  }

  @Get('health')
  @Describe({ summary: 'Liveness: 200 as long as the process answers', reply: Health })
  health(): Health {
    return { status: 'ok', timestamp: new Date().toISOString() };
  }

  @Get('health/ready')
  @Describe({
    summary:
      'Readiness: 503 if the store does not accept writes, the disk is almost full or the host is stopping',
    reply: Readiness,
    otherReplies: { 503: { when: 'The host is not ready', reply: Readiness } },
  })
  async ready(@Res({ passthrough: true }) response: Response): Promise<Readiness> {
    const readiness = await this.readiness.check();
    if (readiness.status === 'not_ready') response.status(503).setHeader('Retry-After', 5);
    return readiness;
  }
}
